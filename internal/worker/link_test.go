package worker

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

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// link is a worker's network connection to storage. A test can cut it, hold all
// requests, or inject a fault into each of them.
type link struct {
	next policy.Transporter

	mu    sync.Mutex
	calls int
	isCut bool
	skew  time.Duration // of the service's clock against the worker's
	held  chan struct{} // not nil while held

	// faultFor returns the fault of request n, counted from 1; nil for no faults. It
	// is called with mu held, and needs a testbed with a recorder.
	faultFor func(n int, r *http.Request) requestFault
}

// requestFault is what happens to one request. With the zero value it arrives and is
// answered at once.
type requestFault struct {
	before, after time.Duration  // the delay of the request, and that of its reply
	lost          bool           // the request never arrives; its sender sees a connection reset
	replyLost     bool           // the request takes effect; its sender sees a connection reset
	hangs         bool           // with lost or replyLost: the connection stays open without a reply instead
	arrivesAfter  time.Duration  // its sender sees a connection reset; it arrives this long after it was sent
	arrivesAnyway bool           // a delayed request arrives even if its sender has given up
	refused       *storage.Error // the service's reply instead of an effect
	crash         crashPoint     // when its sender is killed; 0 for never
	onSend        func()         // called when the request is sent
}

// crashPoint is a point in the life of a request at which its sender is killed.
type crashPoint int

const (
	beforeEffect crashPoint = iota + 1
	afterEffect
	afterReply
)

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

// hold blocks all requests until the returned function is called, as if the process
// were frozen.
func (l *link) hold() (release func()) {
	held := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = nil
		close(held)
	}
}

// sent returns the number of requests sent so far.
func (l *link) sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// waitWhileHeld waits while the link is held, even if the context ends: a frozen
// process does not see that. On a link that was cut it waits until the context ends.
// Requests that waited continue one after another, so that their order is
// deterministic.
func (l *link) waitWhileHeld(ctx context.Context) error {
	turn := time.Duration(time.Now().UnixNano() % 9999991) // up to 10 ms; requests that are sent every second get different ones
	for {
		l.mu.Lock()
		isCut, held := l.isCut, l.held
		l.mu.Unlock()
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

func (l *link) Do(r *http.Request) (*http.Response, error) {
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
	return l.next.Do(r)
}

// nextFault counts a request and returns its fault, if faults are injected.
func (l *link) nextFault(r *http.Request) (f requestFault, has bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.faultFor == nil {
		return requestFault{}, false
	}
	return l.faultFor(l.calls, r), true
}

// sendWithFault sends a request with that fault.
func (l *link) sendWithFault(r *http.Request, f requestFault) (*http.Response, error) {
	if f.onSend != nil {
		f.onSend()
	}
	if f.crash == beforeEffect {
		l.cut()
	}
	if f.crash == beforeEffect || f.lost {
		return nil, l.loseRequest(r, f)
	}
	if f.arrivesAfter > 0 {
		l.sendLater(r, f.arrivesAfter)
		return nil, l.loseRequest(r, f)
	}
	if err := l.waitBefore(r, f); err != nil {
		return nil, err
	}
	reply, err := l.next.(clientTransport).send(r, f.refused)
	if f.crash != 0 {
		l.cut()
	}
	if f.crash == afterReply {
		return reply, err
	}
	if err == nil && l.skew != 0 && r.URL.Query().Get("comp") != "list" { // a list has times in its body too, which must agree with its header
		skewTimes(reply, l.skew)
	}
	if err == nil && !pauseFor(r.Context(), f.after) {
		err = context.Cause(r.Context())
	}
	if passErr := l.waitWhileHeld(r.Context()); passErr != nil {
		return nil, passErr
	}
	if f.replyLost {
		err = f.noReply(r)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// loseRequest returns the error of a request that never arrives.
func (l *link) loseRequest(r *http.Request, f requestFault) error {
	pauseFor(r.Context(), f.before)
	if err := l.waitWhileHeld(r.Context()); err != nil {
		return err
	}
	return f.noReply(r)
}

// noReply returns the error of a request that gets no reply: a connection reset, or
// with hangs the end of its context.
func (f requestFault) noReply(r *http.Request) error {
	if f.hangs {
		<-r.Context().Done()
		return context.Cause(r.Context())
	}
	return connectionReset(r)
}

// waitBefore waits for the delay of a request. If the sender gives up during it, the
// request still arrives if arrivesAnyway is set.
func (l *link) waitBefore(r *http.Request, f requestFault) error {
	if f.before == 0 {
		return nil
	}
	start := time.Now()
	if pauseFor(r.Context(), f.before) {
		return l.waitWhileHeld(r.Context())
	}
	if left := f.before - time.Since(start); f.arrivesAnyway && left > 0 {
		l.sendLater(r, left)
	}
	return context.Cause(r.Context())
}

// sendLater delivers a request after that time, even if its sender is gone by then.
func (l *link) sendLater(r *http.Request, after time.Duration) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body) // cannot fail: it is in memory
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	d := l.next.(clientTransport)
	d.recorder.lateRequests.Go(func() {
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
	return sleepFor(ctx, d)
}

// metadataLink is a worker's connection to its metadata service. It is held and cut
// together with the link to storage.
type metadataLink struct {
	link *link
	next http.RoundTripper
}

func (g metadataLink) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.link.waitWhileHeld(r.Context()); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// clientTransport sends the requests of one client to the storage emulator, one at a
// time over all clients, so that the recorder sees each effect on its own.
type clientTransport struct {
	recorder *recorder
	name     string
	next     policy.Transporter
}

// transport returns a transport for the client of that name. Without a recorder it is
// the emulator's own.
func (b *testbed) transport(name string) policy.Transporter {
	next := b.server.Transport()
	if b.accounts != nil {
		next = b.accounts.transport()
	}
	if b.recorder == nil {
		return next
	}
	return clientTransport{recorder: b.recorder, name: name, next: next}
}

func (d clientTransport) Do(r *http.Request) (*http.Response, error) { return d.send(r, nil) }

// send executes a request, or has it refused.
func (d clientTransport) send(r *http.Request, refused *storage.Error) (*http.Response, error) {
	d.recorder.turn.Lock() // no holder sleeps
	defer d.recorder.turn.Unlock()
	d.recorder.sender, d.recorder.refused = d.name, refused
	return d.next.Do(r)
}
