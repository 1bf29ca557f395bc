package storage

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// Call describes one request before it has an effect.
type Call struct {
	// N counts all calls of the account from 1, retries by a client included.
	N         int64
	Service   protocol.Service
	Operation string
	// Principal is the object id of the identity whose token was accepted,
	// empty for the account's key.
	Principal string

	Queue     string // queue operations
	MessageID string // UpdateMessage, DeleteMessage

	Container string          // blob operations
	Blob      string          // blob operations below a container
	BlockID   string          // PutBlock: base64, as sent
	Range     *protocol.Range // GetBlob: nil when the whole blob is asked for

	// IfMatch and IfNoneMatch are the conditions as sent, quotes included.
	IfMatch, IfNoneMatch string
	// Size is the length of the request's body in bytes.
	Size int64
}

// Fault is injected into one call by a hook. The zero value is none. When the call's
// context ends during a delay or a slow body, the call ends at once: before its effect
// without one, otherwise with its effect and no reply.
type Fault struct {
	// Before delays the effect; After delays the reply once the effect took
	// place.
	Before, After time.Duration
	// Bandwidth limits the bodies of this call alone, besides the account's
	// bandwidth. Before begins when the request's body has arrived, and After
	// ends when the reply's body begins to flow.
	Bandwidth Bandwidth
	// Refuse answers with this error instead of the effect.
	Refuse *protocol.Error
	// DropRequest cuts the connection before the effect.
	DropRequest bool
	// DropReply cuts the connection between the effect and the reply.
	DropReply bool
	// CutBody cuts the connection after the effect, between the reply's headers and the first
	// byte of its body. A reply without a body is complete.
	CutBody bool
	// SpoilReply is called once the effect took place. If it returns true, the
	// reply's body ends in the middle, so that no XML parser can read it.
	SpoilReply func(Result) bool
	// RefuseReply is called once the effect took place. An error that it returns is the
	// reply: so Azurite answers 500 to a Get Messages that handed out a text which XML
	// cannot hold.
	RefuseReply func(Result) *protocol.Error
}

// Result is the outcome of a call.
type Result struct {
	Call
	// Status is the HTTP status of the reply, whether or not the caller got
	// it; 0 where the call was cut or cancelled, or its body did not arrive
	// whole, before its effect.
	Status int
	// Code is the service's error code, empty on success.
	Code string
	// ETag is the entity tag in the reply, if any.
	ETag string
	// Served is the range that a GetBlob sends.
	Served protocol.Range
	// MessageIDs are the messages that PutMessage made or that GetMessages and
	// PeekMessages handed out.
	MessageIDs []string
}

// callLog numbers and counts calls, and holds the hooks.
type callLog struct {
	mu       sync.Mutex
	total    int64
	counts   map[string]int64
	onCall   func(Call) Fault
	onResult func(Result)
}

// begin numbers the call and asks the hook for its fault. The hook runs
// outside the lock, so that it may use the server.
func (l *callLog) begin(c *Call) Fault {
	l.mu.Lock()
	l.total++
	c.N = l.total
	l.counts[c.Operation]++
	hook := l.onCall
	l.mu.Unlock()
	if hook == nil {
		return Fault{}
	}
	return hook(*c)
}

// end reports the outcome of a call; rep is nil when it had no effect.
func (l *callLog) end(c Call, rep *protocol.Reply) {
	l.mu.Lock()
	hook := l.onResult
	l.mu.Unlock()
	if hook == nil {
		return
	}
	hook(resultOf(c, rep))
}

// resultOf returns the outcome of a call; rep is nil when it had no effect.
func resultOf(c Call, rep *protocol.Reply) Result {
	res := Result{Call: c}
	if rep != nil {
		res.Status = rep.Status
		res.Code = rep.Header.Get(protocol.HeaderErrorCode)
		res.ETag = rep.Header.Get("ETag")
		res.Served = rep.Served
		res.MessageIDs = rep.MessageIDs
	}
	return res
}

// OnCall sets the hook that decides on the fault of every call, also of calls that will
// be refused, before its body is read; nil removes it. It may be changed at any time. The
// hook runs on the call's own goroutine and may use the server. A hook that blocks delays
// its call, and is not interrupted when the caller gives up.
func (s *Server) OnCall(hook func(Call) Fault) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.onCall = hook
}

// OnResult sets the hook that is called for every call once its effect took place
// or was ruled out, before the reply is sent; nil removes it. Results of
// concurrent calls arrive in no particular order.
func (s *Server) OnResult(hook func(Result)) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.onResult = hook
}

// Counts returns the number of calls by operation since the start or the last
// ResetCounts, refused and cut ones included.
func (s *Server) Counts() map[string]int64 {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return maps.Clone(s.calls.counts)
}

// ResetCounts sets all counts to 0, also Throttled. Call.N keeps counting.
func (s *Server) ResetCounts() {
	s.limits.resetCount()
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	clear(s.calls.counts)
}

// newCall describes a request for the hooks.
func newCall(r *protocol.Request, operation string) Call {
	c := Call{
		Service:     r.Service,
		Operation:   operation,
		Principal:   r.Principal,
		IfMatch:     r.Header.Get("If-Match"),
		IfNoneMatch: r.Header.Get("If-None-Match"),
		Size:        max(r.ContentLength, 0),
	}
	switch r.Service {
	case protocol.QueueService:
		c.Queue = r.Resource
		c.MessageID = r.MessageID()
	case protocol.BlobService:
		c.Container = r.Resource
		c.Blob = r.Rest
		c.BlockID = r.Query.Get("blockid")
		if r.Method == http.MethodGet {
			c.Range = protocol.RequestedRange(r)
		}
	}
	return c
}
