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

	// fate says what becomes of request n, counted from 1; nil for nothing. It
	// is called with mu held, and needs a bench with a ledger.
	fate func(n int, r *http.Request) fate
}

// fate is what becomes of one request. The zero value is that it is answered at once.
type fate struct {
	before, after time.Duration // until it arrives, or is cut; and then until the reply does
	lost          bool          // it never arrives, and its sender sees the connection cut
	mute          bool          // it arrives, and its sender sees the connection cut
	open          bool          // with lost or mute: the connection stays open instead, and nothing ever comes
	late          time.Duration // its sender sees the connection cut; it arrives this much after it was sent
	stray         bool          // it arrives even if its sender gives up first
	refused       *storage.Error
	dies          moment // when its sender dies, if it does
	struck        func() // called when the request is sent
}

// moment is one at which a sender may die.
type moment int

const (
	beforeEffect moment = iota + 1
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

// pass waits while the link is held, whatever the context says: a frozen process
// does not look. On a link that was cut it waits for the end of the context. Those
// that waited continue one after another, so that their order is certain.
func (l *link) pass(ctx context.Context) error {
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
	if err := l.pass(r.Context()); err != nil {
		return nil, err
	}
	time.Sleep(time.Nanosecond) // what else happens at this moment has happened then, such as the end of the context
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context()) // as net/http does: nothing is sent
	}
	if f, has := l.fateOf(r); has {
		return l.meet(r, f)
	}
	return l.next.Do(r)
}

// fateOf counts a request, and returns its fate if it has one.
func (l *link) fateOf(r *http.Request) (f fate, has bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.fate == nil {
		return fate{}, false
	}
	return l.fate(l.calls, r), true
}

// meet lets a request meet its fate.
func (l *link) meet(r *http.Request, f fate) (*http.Response, error) {
	if f.struck != nil {
		f.struck()
	}
	if f.dies == beforeEffect {
		l.cut()
	}
	if f.dies == beforeEffect || f.lost {
		return nil, l.lose(r, f)
	}
	if f.late > 0 {
		l.arriveLater(r, f.late)
		return nil, l.lose(r, f)
	}
	if err := l.travel(r, f); err != nil {
		return nil, err
	}
	reply, err := l.next.(door).enter(r, f.refused)
	if f.dies != 0 {
		l.cut()
	}
	if f.dies == afterReply {
		return reply, err
	}
	if err == nil && l.skew != 0 && r.URL.Query().Get("comp") != "list" { // whose body has times too, which agree
		skewed(reply, l.skew)
	}
	if err == nil && !pauseFor(r.Context(), f.after) {
		err = context.Cause(r.Context())
	}
	if passErr := l.pass(r.Context()); passErr != nil {
		return nil, passErr
	}
	if f.mute {
		err = f.silence(r)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// lose is what the sender of a request sees that never arrives.
func (l *link) lose(r *http.Request, f fate) error {
	pauseFor(r.Context(), f.before)
	if err := l.pass(r.Context()); err != nil {
		return err
	}
	return f.silence(r)
}

// silence is what the sender of a request sees to which no reply comes.
func (f fate) silence(r *http.Request) error {
	if f.open {
		<-r.Context().Done()
		return context.Cause(r.Context())
	}
	return cutError(r)
}

// travel is a request's way to the service. A sender that gives up in the meantime does
// not always stop it.
func (l *link) travel(r *http.Request, f fate) error {
	if f.before == 0 {
		return nil
	}
	start := time.Now()
	if pauseFor(r.Context(), f.before) {
		return l.pass(r.Context())
	}
	if left := f.before - time.Since(start); f.stray && left > 0 {
		l.arriveLater(r, left)
	}
	return context.Cause(r.Context())
}

// arriveLater lets a request arrive after that time, whatever becomes of its sender.
func (l *link) arriveLater(r *http.Request, after time.Duration) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body) // in memory
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	d := l.next.(door)
	d.ledger.stragglers.Go(func() {
		time.Sleep(after)
		if reply, err := d.enter(late, nil); err == nil {
			_ = reply.Body.Close()
		}
	})
}

// cutError is what the sender of a request sees when its connection is cut.
func cutError(r *http.Request) error {
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

// guestLink is a worker's way to its metadata service, which ends and is held up
// with the one to storage.
type guestLink struct {
	link *link
	next http.RoundTripper
}

func (g guestLink) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.link.pass(r.Context()); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// door is where one client's requests enter storage. Where there is a ledger they
// take effect one after another, so that it sees each effect as it is.
type door struct {
	ledger *ledger
	name   string
	next   policy.Transporter
}

// door returns the client of that name's door.
func (b *bench) door(name string) policy.Transporter {
	if b.ledger == nil {
		return b.server.Transport()
	}
	return door{ledger: b.ledger, name: name, next: b.server.Transport()}
}

func (d door) Do(r *http.Request) (*http.Response, error) { return d.enter(r, nil) }

// enter lets a request take effect, or be refused.
func (d door) enter(r *http.Request, refused *storage.Error) (*http.Response, error) {
	d.ledger.turn.Lock() // nothing waits for time while it is held
	defer d.ledger.turn.Unlock()
	d.ledger.sender, d.ledger.refused = d.name, refused
	return d.next.Do(r)
}
