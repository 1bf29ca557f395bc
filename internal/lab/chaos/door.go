package chaos

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
)

const (
	// callLimit bounds one call behind a door.
	callLimit = time.Minute

	// maxBody bounds a request's body, in bytes.
	maxBody = 64 << 20
)

// door is one VM's way to storage: a proxy on loopback for each service. It
// tells the tally what took effect, whether or not the worker learnt of it.
type door struct {
	vm    string
	names azure.Names
	tally *tally
	to    http.RoundTripper

	// connectionString leads through the door.
	connectionString string

	over <-chan struct{} // closed when the run is; nothing is delayed from then on

	servers []*http.Server
	serving sync.WaitGroup

	mu    sync.Mutex
	shut  bool // nothing comes through
	traps []*trap
	conns map[net.Conn]bool
}

// openDoor opens a door to the account of that connection string.
func openDoor(vm, connectionString string, names azure.Names, t *tally, to http.RoundTripper, over <-chan struct{}) (*door, error) {
	d := &door{vm: vm, names: names, tally: t, to: to, conns: map[net.Conn]bool{}, connectionString: connectionString, over: over}
	all, err := services(connectionString)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		address, err := d.serve(s)
		if err != nil {
			d.close()
			return nil, err
		}
		d.connectionString = strings.ReplaceAll(d.connectionString, s.base.Host, address)
	}
	return d, nil
}

func (d *door) serve(s service) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return "", err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.pass(w, r, s) }),
		ReadHeaderTimeout: callLimit, ConnState: d.track,
	}
	d.servers = append(d.servers, server)
	d.serving.Go(func() { _ = server.Serve(listener) }) // returns when close closes the server
	return listener.Addr().String(), nil
}

// close ends the door. Calls under way end by themselves.
func (d *door) close() {
	for _, s := range d.servers {
		_ = s.Close() // what else would there be to do
	}
	d.serving.Wait()
}

// pass lets one call through, or does to it what a trap is for.
func (d *door) pass(w http.ResponseWriter, r *http.Request, s service) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the worker died before it had sent all of it
	}
	c := readCall(d.names, s, d.vm, r, body)
	t, shut := d.step(c)
	if shut || t != nil && !t.fault.effect() {
		t.spring()
		d.drop(w, r, t)
		return
	}
	if t != nil && t.fault == delayRequest {
		if !d.pause(t.delay) {
			cut(w)
			return
		}
		c.arrived = time.Now() // at storage
	}
	reply, err := d.forward(r, s.base, body)
	if err != nil {
		d.tally.missed(c)
	} else {
		d.tally.saw(c, reply, !t.loses())
	}
	t.spring()
	if t.loses() || err != nil {
		d.drop(w, r, t)
		return
	}
	if t != nil && t.fault == delayReply {
		d.pause(t.delay)
	}
	answer(w, reply)
}

// drop ends a call without a reply: by a reset, or by silence until the caller
// closes the connection.
func (d *door) drop(w http.ResponseWriter, r *http.Request, t *trap) {
	if t.swallows() {
		ctx, cancel := context.WithTimeout(r.Context(), callLimit)
		defer cancel()
		select {
		case <-ctx.Done():
		case <-d.over:
		}
	}
	cut(w)
}

// pause waits for a delay and reports true, or false when the run ends first. A
// caller that gave up, or a worker that was killed, does not end it: its request
// is still on its way.
func (d *door) pause(delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.over:
		return false
	}
}

// reply is what storage said.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// forward makes the call, and sees it through also when its caller is gone.
func (d *door) forward(r *http.Request, base *url.URL, body []byte) (*reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), callLimit)
	defer cancel()
	out := r.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", base.Scheme, base.Host, base.Host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	got, err := d.to.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return &reply{got.StatusCode, got.Header, text}, err
}

func answer(w http.ResponseWriter, reply *reply) {
	maps.Copy(w.Header(), reply.header)
	w.Header().Del("Connection") // is between door and storage
	w.WriteHeader(reply.status)
	_, _ = w.Write(reply.body) //nolint:gosec // it is what storage said, to a worker and no browser; one that is gone reads nothing
}

// cut ends the call's connection with a reset.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // it is gone already
	}
	reset(conn)
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// setShut cuts the VM off from storage, with all its connections, or lets it back.
func (d *door) setShut(shut bool) {
	d.mu.Lock()
	d.shut = shut
	var open []net.Conn
	for conn := range d.conns {
		open = append(open, conn)
	}
	d.mu.Unlock()
	if shut {
		for _, conn := range open {
			reset(conn)
		}
	}
}

// track knows the connections that are open.
func (d *door) track(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case http.StateNew:
		d.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(d.conns, conn)
	case http.StateActive, http.StateIdle:
	}
}

// upstream is how doors reach storage.
func upstream() *http.Transport {
	return &http.Transport{
		Proxy: nil, DialContext: (&net.Dialer{Timeout: callLimit}).DialContext, MaxIdleConnsPerHost: 256,
		IdleConnTimeout: 4 * time.Second, DisableCompression: true, // Azurite closes idle connections after 5 s
	}
}
