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

// link is a worker's way to storage. It can be cut for ever or be held up, and
// may have a fate in store for each request.
type link struct {
	next policy.Transporter

	mu    sync.Mutex
	calls int
	dead  bool
	skew  time.Duration // of the service's clock, as the worker sees it
	held  chan struct{} // not nil while held

	// faultFor says what becomes of request n, counted from 1; nil for nothing. It
	// is called with mu held, and needs a bench with a ledger.
	faultFor func(n int, r *http.Request) requestFault
}

// requestFault is what becomes of one request. The zero value is that it is answered at once.
type requestFault struct {
	before, after time.Duration // until it arrives, or is cut; and then until the reply does
	lost          bool          // it never arrives, and its sender sees the connection cut
	replyLost     bool          // it arrives, and its sender sees the connection cut
	hangs         bool          // with lost or mute: the connection stays open instead, and nothing ever comes
	arrivesAfter  time.Duration // its sender sees the connection cut; it arrives this much after it was sent
	arrivesAnyway bool          // it arrives even if its sender gives up first
	refused       *storage.Error
	crash         crashPoint // when its sender dies, if it does
	onSend        func()     // called when the request is sent
}

// crashPoint is one at which a sender may die.
type crashPoint int

const (
	beforeEffect crashPoint = iota + 1
	afterEffect
	afterReply
)

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// hold keeps all calls waiting until the returned function is called, as if the
// process was frozen.
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

// sent returns how many requests were sent so far.
func (l *link) sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// waitWhileHeld waits while the link is held, whatever the context says: a frozen process
// does not look. On a link that was cut it waits for the end of the context. Those
// that waited continue one after another, so that their order is certain.
func (l *link) waitWhileHeld(ctx context.Context) error {
	turn := time.Duration(time.Now().UnixNano() % 9999991) // up to 10 ms; not the same for those that come every second
	for {
		l.mu.Lock()
		dead, held := l.dead, l.held
		l.mu.Unlock()
		switch {
		case dead:
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
	time.Sleep(time.Nanosecond) // what else happens at this moment has happened then, such as the end of the context
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context()) // as net/http does: nothing is sent
	}
	if f, has := l.nextFault(r); has {
		return l.sendWithFault(r, f)
	}
	return l.next.Do(r)
}

// nextFault counts a request, and returns its fate if it has one.
func (l *link) nextFault(r *http.Request) (f requestFault, has bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.faultFor == nil {
		return requestFault{}, false
	}
	return l.faultFor(l.calls, r), true
}

// sendWithFault lets a request meet its fate.
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
	if err == nil && l.skew != 0 && r.URL.Query().Get("comp") != "list" { // whose body has times too, which agree
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

// loseRequest is what the sender of a request sees that never arrives.
func (l *link) loseRequest(r *http.Request, f requestFault) error {
	pauseFor(r.Context(), f.before)
	if err := l.waitWhileHeld(r.Context()); err != nil {
		return err
	}
	return f.noReply(r)
}

// noReply is what the sender of a request sees to which no reply comes.
func (f requestFault) noReply(r *http.Request) error {
	if f.hangs {
		<-r.Context().Done()
		return context.Cause(r.Context())
	}
	return connectionReset(r)
}

// waitBefore is a request's way to the service. A sender that gives up in the meantime does
// not always stop it.
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

// sendLater lets a request arrive after that time, whatever becomes of its sender.
func (l *link) sendLater(r *http.Request, after time.Duration) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body) // in memory
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	d := l.next.(clientTransport)
	d.ledger.stragglers.Go(func() {
		time.Sleep(after)
		if reply, err := d.send(late, nil); err == nil {
			_ = reply.Body.Close()
		}
	})
}

// connectionReset is what the sender of a request sees when its connection is cut.
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

// metadataLink is a worker's way to its metadata service, which ends and is held up
// with the one to storage.
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

// clientTransport is where one client's requests enter storage. Where there is a ledger they
// take effect one after another, so that it sees each effect as it is.
type clientTransport struct {
	ledger *ledger
	name   string
	next   policy.Transporter
}

// transport returns the client of that name's door.
func (b *testbed) transport(name string) policy.Transporter {
	if b.ledger == nil {
		return b.server.Transport()
	}
	return clientTransport{ledger: b.ledger, name: name, next: b.server.Transport()}
}

func (d clientTransport) Do(r *http.Request) (*http.Response, error) { return d.send(r, nil) }

// send lets a request take effect, or be refused.
func (d clientTransport) send(r *http.Request, refused *storage.Error) (*http.Response, error) {
	d.ledger.turn.Lock() // nothing waits for time while it is held
	defer d.ledger.turn.Unlock()
	d.ledger.sender, d.ledger.refused = d.name, refused
	return d.next.Do(r)
}
