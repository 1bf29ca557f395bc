package rig

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
)

// Link is a worker's network connection to storage. A test can cut it, hold all
// requests, or inject a fault into each of them.
type Link struct {
	Next policy.Transporter

	Mu    sync.Mutex
	calls int
	isCut bool
	Skew  time.Duration // of the service's clock against the worker's
	held  chan struct{} // not nil while held

	// faultFor returns the fault of request n, counted from 1; nil for no faults. It
	// is called with mu held, and needs a testbed with a recorder.
	FaultFor func(n int, r *http.Request) RequestFault
}

// RequestFault is the fate of one request. With the zero value it arrives and is answered
// at once.
type RequestFault struct {
	Before, After time.Duration  // the delays of the request and of its reply
	Lost          bool           // the request never arrives; its sender sees a connection reset
	ReplyLost     bool           // the request takes effect; its sender sees a connection reset
	Hangs         bool           // with lost or replyLost: the connection stays open without a reply instead
	ArrivesAfter  time.Duration  // its sender sees a connection reset; it arrives this long after it was sent
	ArrivesAnyway bool           // a delayed request arrives even if its sender has given up
	Refused       *storage.Error // the service's reply instead of an effect
	Crash         CrashPoint     // when its sender is killed; 0 for never
	OnSend        func()         // called when the request is sent
}

// CrashPoint is a point in the life of a request at which its sender is killed.
type CrashPoint int

// The crash points.
const (
	BeforeEffect CrashPoint = iota + 1
	AfterEffect
	AfterReply
)

// Cut ends the connection permanently.
func (l *Link) Cut() {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.isCut = true
}

// Hold blocks all requests until the returned function is called, as if the process
// were frozen.
func (l *Link) Hold() (release func()) {
	held := make(chan struct{})
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.held = held
	return func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		if l.held == held {
			l.held = nil
			close(held)
		}
	}
}

// Sent returns the number of requests sent so far.
func (l *Link) Sent() int {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.calls
}

// waitWhileHeld waits while the link is held, even if the context ends: a frozen
// process does not see that. On a link that was cut it waits until the context ends.
// Requests that waited continue one after another, so that their order is
// deterministic.
func (l *Link) waitWhileHeld(ctx context.Context) error {
	turn := time.Duration(time.Now().UnixNano() % 9999991) // up to 10 ms; requests that are sent every second get different ones
	for {
		l.Mu.Lock()
		isCut, held := l.isCut, l.held
		l.Mu.Unlock()
		switch {
		case isCut:
			<-ctx.Done()
			return context.Cause(ctx)
		case held == nil:
			return nil
		}
		<-held
		time.Sleep(turn)
	}
}

// Do implements policy.Transporter.
func (l *Link) Do(r *http.Request) (*http.Response, error) {
	if err := l.waitWhileHeld(r.Context()); err != nil {
		return nil, err
	}
	// Other events of this moment happen first, such as the end of the context. Then nothing
	// is sent, as in net/http, and no time passes: whether a caller notices the end before
	// it makes the call depends on scheduling.
	if !pauseFor(r.Context(), time.Nanosecond) {
		return nil, context.Cause(r.Context())
	}
	if f, has := l.nextFault(r); has {
		return l.sendWithFault(r, f)
	}
	return l.Next.Do(r)
}

// nextFault counts a request and returns its fault, if faults are injected.
func (l *Link) nextFault(r *http.Request) (f RequestFault, has bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.calls++
	if l.FaultFor == nil {
		return RequestFault{}, false
	}
	return l.FaultFor(l.calls, r), true
}

// sendWithFault sends a request with that fault.
func (l *Link) sendWithFault(r *http.Request, f RequestFault) (*http.Response, error) {
	if f.OnSend != nil {
		f.OnSend()
	}
	if f.Crash == BeforeEffect {
		l.Cut()
	}
	if f.Crash == BeforeEffect || f.Lost {
		return nil, l.loseRequest(r, f)
	}
	if f.ArrivesAfter > 0 {
		l.sendLater(r, f.ArrivesAfter)
		return nil, l.loseRequest(r, f)
	}
	if err := l.waitBefore(r, f); err != nil {
		return nil, err
	}
	reply, err := l.Next.(clientTransport).send(r, f.Refused)
	if f.Crash != 0 {
		l.Cut()
	}
	if f.Crash == AfterReply {
		return reply, err
	}
	return l.deliver(r, f, reply, err)
}

// deliver returns the reply to a request that took effect, or the error, as its fault has it.
func (l *Link) deliver(r *http.Request, f RequestFault, reply *http.Response, err error) (*http.Response, error) {
	if err == nil && l.Skew != 0 && r.URL.Query().Get("comp") != "list" { // a list has times in its body too, which must agree with its header
		skewTimes(reply, l.Skew)
	}
	if err == nil && !pauseFor(r.Context(), f.After) {
		err = context.Cause(r.Context())
	}
	if passErr := l.waitWhileHeld(r.Context()); passErr != nil {
		return nil, passErr
	}
	if f.ReplyLost {
		err = f.noReply(r)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// loseRequest returns the error of a request that never arrives.
func (l *Link) loseRequest(r *http.Request, f RequestFault) error {
	pauseFor(r.Context(), f.Before)
	if err := l.waitWhileHeld(r.Context()); err != nil {
		return err
	}
	return f.noReply(r)
}

// noReply returns the error of a request that gets no reply: a connection reset, or
// with hangs the end of its context.
func (f RequestFault) noReply(r *http.Request) error {
	if f.Hangs {
		<-r.Context().Done()
		return context.Cause(r.Context())
	}
	return connectionReset(r)
}

// waitBefore waits for the delay of a request. If the sender gives up during it, the
// request still arrives if arrivesAnyway is set.
func (l *Link) waitBefore(r *http.Request, f RequestFault) error {
	if f.Before == 0 {
		return nil
	}
	start := time.Now()
	if pauseFor(r.Context(), f.Before) {
		return l.waitWhileHeld(r.Context())
	}
	if left := f.Before - time.Since(start); f.ArrivesAnyway && left > 0 {
		l.sendLater(r, left)
	}
	return context.Cause(r.Context())
}

// sendLater delivers a request after that time, even if its sender is gone by then.
func (l *Link) sendLater(r *http.Request, after time.Duration) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body) // cannot fail: it is in memory
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	d := l.Next.(clientTransport)
	d.recorder.LateRequests.Go(func() {
		time.Sleep(after)
		if reply, err := d.send(late, nil); err == nil {
			_ = reply.Body.Close()
		}
	})
}

// connectionReset is the error of a request whose connection is reset.
func connectionReset(r *http.Request) error {
	err := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	return &url.Error{Op: r.Method, URL: r.URL.Redacted(), Err: err}
}

// pauseFor waits for d and reports true, or false when ctx ends first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	return SleepFor(ctx, d)
}

// metadataLink is a worker's connection to its metadata service. It is held and cut
// together with the link to storage.
type metadataLink struct {
	link *Link
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g metadataLink) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.link.waitWhileHeld(r.Context()); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// clientTransport sends the requests of one client to the storage emulator, one at a
// time over all clients, so that the recorder sees each effect on its own.
type clientTransport struct {
	recorder *recorder.Recorder
	name     string
	next     policy.Transporter
}

// Transport returns a transport for the client of that name. Without a recorder it is
// the emulator's own.
func (b *Bed) Transport(name string) policy.Transporter {
	next := b.Server.Transport()
	if b.Recorder == nil {
		return next
	}
	return clientTransport{recorder: b.Recorder, name: name, next: next}
}

// Do implements policy.Transporter.
func (d clientTransport) Do(r *http.Request) (*http.Response, error) { return d.send(r, nil) }

// send executes a request, or has it refused.
func (d clientTransport) send(r *http.Request, refused *storage.Error) (*http.Response, error) {
	return d.recorder.Perform(d.name, refused, func() (*http.Response, error) { return d.next.Do(r) })
}

// skewTimes shifts the times in a reply's header, as if the clocks of the worker and
// the service differed.
func skewTimes(reply *http.Response, by time.Duration) {
	for _, name := range []string{"Date", "Last-Modified"} {
		if at, err := http.ParseTime(reply.Header.Get(name)); err == nil {
			reply.Header.Set(name, at.Add(by).UTC().Format(http.TimeFormat))
		}
	}
}

// IsFault reports whether a request is delayed for long, lost or refused.
func (f RequestFault) IsFault() bool {
	return f.Lost || f.ReplyLost || f.ArrivesAfter > 0 || f.Refused != nil || max(f.Before, f.After) >= time.Second
}
