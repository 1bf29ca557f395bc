package stage

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/storage/azure"
)

const (
	// callLimit is the time limit of one call to storage.
	callLimit = time.Minute

	// maxBody is the largest body of a request, in bytes.
	maxBody = 64 << 20
)

// Proxy connects one VM to storage, with a server on loopback for each service. It
// records which calls took effect, whether or not the worker gets the reply, and
// injects Faults.
type Proxy struct {
	vm       string
	names    azure.Names
	recorder *Recorder
	storage  http.RoundTripper

	// connectionString leads clients to the proxy.
	connectionString string

	over <-chan struct{} // closed when the run ends, and all delays with it

	servers []*http.Server
	serving sync.WaitGroup

	mu         sync.Mutex
	isCutOff   bool // no call gets through
	injections []*Injection
	conns      map[net.Conn]bool
}

// startProxy starts a proxy to the account of that connection string.
func startProxy(vm, connectionString string, names azure.Names, r *Recorder, storage http.RoundTripper, over <-chan struct{}) (*Proxy,
	error) {
	p := &Proxy{vm: vm, names: names, recorder: r, storage: storage, conns: map[net.Conn]bool{}, connectionString: connectionString,
		over: over}
	all, err := services(connectionString)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		address, err := p.serve(s)
		if err != nil {
			p.close()
			return nil, err
		}
		p.connectionString = strings.ReplaceAll(p.connectionString, s.base.Host, address)
	}
	return p, nil
}

func (p *Proxy) serve(s service) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return "", err
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.pass(w, r, s) }),
		ReadHeaderTimeout: callLimit, ConnState: p.track,
	}
	p.servers = append(p.servers, server)
	p.serving.Go(func() { _ = server.Serve(listener) }) // returns when close closes the server
	return listener.Addr().String(), nil
}

// close stops the proxy. It does not wait for calls in flight.
func (p *Proxy) close() {
	for _, s := range p.servers {
		_ = s.Close() // nothing can be done about an error
	}
	p.serving.Wait()
}

// pass forwards one call, or injects a fault.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, s service) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the worker was killed before it had sent all of it
	}
	c := readCall(p.names, s, p.vm, r, body)
	i, isCutOff := p.match(c)
	if isCutOff || i.prevents() {
		i.notify()
		p.drop(w, r, i)
		return
	}
	if i != nil && i.Fault == DelayRequest {
		if !p.pause(i.Delay) {
			cut(w)
			return
		}
		c.arrived = time.Now() // at storage
	}
	if i == nil && c.Operation == OtherCall && r.Method == http.MethodGet {
		p.stream(w, r, s.base, body)
		p.recorder.answered(c, &reply{}, true)
		return
	}
	reply, err := p.forward(r, s.base, body)
	if err != nil {
		p.recorder.missed(c, err)
	} else {
		p.recorder.answered(c, reply, !i.losesReply())
	}
	i.notify()
	if i.losesReply() || err != nil {
		p.drop(w, r, i)
		return
	}
	if i != nil && i.Fault == DelayReply {
		p.pause(i.Delay)
	}
	answer(w, reply)
}

// drop ends a call without a reply, by a reset. A swallowed call first waits until
// the caller closes the connection.
func (p *Proxy) drop(w http.ResponseWriter, r *http.Request, i *Injection) {
	if i.swallows() {
		ctx, cancel := context.WithTimeout(r.Context(), callLimit)
		defer cancel()
		select {
		case <-ctx.Done():
		case <-p.over:
		}
	}
	cut(w)
}

// pause waits for a delay and reports true, or false when the run ends first. It
// does not end when the caller gives up or is killed: its request is in flight.
func (p *Proxy) pause(delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.over:
		return false
	}
}

// reply is the reply of storage.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends the call to storage.
func (p *Proxy) send(ctx context.Context, r *http.Request, base *url.URL, body []byte) (*http.Response, error) {
	out := r.Clone(ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", base.Scheme, base.Host, base.Host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	return p.storage.RoundTrip(out)
}

// stream makes a call that changes nothing, and passes on its reply as it comes: a
// download at a limited bandwidth takes long.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request, base *url.URL, body []byte) {
	got, err := p.send(r.Context(), r, base, body)
	if err != nil {
		cut(w)
		return
	}
	defer got.Body.Close()
	answer(w, &reply{got.StatusCode, got.Header, nil})
	_, _ = io.Copy(w, got.Body) // it fails only if the worker or the storage is gone
}

// forward makes the call, and completes it even if its caller is gone.
func (p *Proxy) forward(r *http.Request, base *url.URL, body []byte) (*reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), callLimit)
	defer cancel()
	got, err := p.send(ctx, r, base, body)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return &reply{got.StatusCode, got.Header, text}, err
}

func answer(w http.ResponseWriter, reply *reply) {
	maps.Copy(w.Header(), reply.header)
	w.Header().Del("Connection") // it is between proxy and storage
	w.WriteHeader(reply.status)
	_, _ = w.Write(reply.body) //nolint:gosec // a reply of storage, to a worker and no browser; it fails only if that is gone
}

// cut ends the call's connection with a reset.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the connection is closed
	}
	reset(conn)
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// SetCutOff cuts the VM off from storage, with all its connections, or reconnects
// it.
func (p *Proxy) SetCutOff(cutOff bool) {
	p.mu.Lock()
	p.isCutOff = cutOff
	var open []net.Conn
	for conn := range p.conns {
		open = append(open, conn)
	}
	p.mu.Unlock()
	if cutOff {
		for _, conn := range open {
			reset(conn)
		}
	}
}

// track keeps the list of open connections.
func (p *Proxy) track(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, conn)
	case http.StateActive, http.StateIdle:
	}
}

// upstream returns the proxies' transport to storage. Each call has a connection of its own
// unless storage keeps idle ones: Azurite closes them after 5 s, at worst while a call is sent,
// and whether such a call took effect nobody knows.
func upstream(keepsIdle bool) *http.Transport {
	return &http.Transport{
		Proxy: nil, DialContext: (&net.Dialer{Timeout: callLimit}).DialContext, MaxIdleConnsPerHost: 256,
		DisableKeepAlives: !keepsIdle, DisableCompression: true,
	}
}

// Fault is the effect of a proxy on a call.
type Fault int

// Effects on a call.
const (
	ResetRequest   Fault = iota // no effect, and its connection is reset
	ResetReply                  // takes effect, and its connection is reset
	SwallowRequest              // no effect, and no answer: the connection stays open
	SwallowReply                // takes effect, and no answer
	DelayRequest                // takes effect late, perhaps when its caller has given up
	DelayReply                  // takes effect at once, and is answered late
	Faults                      // how many there are
)

func (f Fault) String() string {
	return [...]string{"reset request", "reset reply", "swallow request", "swallow reply", "delay request", "delay reply"}[f]
}

// hasEffect reports whether the call reaches storage.
func (f Fault) hasEffect() bool { return f != ResetRequest && f != SwallowRequest }

// Injection is a fault for the next calls that match.
type Injection struct {
	Calls    int // that it still applies to
	Matches  func(Call) bool
	Fault    Fault
	Delay    time.Duration // of the delaying Faults
	Injected func()        // runs after the effect, or in its place. Optional.
}

// Inject adds an injection. The returned function removes it, and reports whether
// it was still there.
func (p *Proxy) Inject(i *Injection) (remove func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.injections = append(p.injections, i)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.remove(i)
	}
}

// remove removes an injection, and reports whether it was there. The caller holds
// mu.
func (p *Proxy) remove(i *Injection) bool {
	at := slices.Index(p.injections, i)
	if at >= 0 {
		p.injections = slices.Delete(p.injections, at, at+1)
	}
	return at >= 0
}

// match returns the injection for a call, if any, or whether the VM is cut off.
func (p *Proxy) match(c Call) (i *Injection, isCutOff bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCutOff {
		return nil, true
	}
	for _, i := range p.injections {
		if !i.Matches(c) {
			continue
		}
		if i.Calls--; i.Calls == 0 {
			p.remove(i)
		}
		return i, false
	}
	return nil, false
}

// notify calls injected, if there is an injection with one.
func (i *Injection) notify() {
	if i != nil && i.Injected != nil {
		i.Injected()
	}
}

// prevents reports whether the call does not reach storage.
func (i *Injection) prevents() bool { return i != nil && !i.Fault.hasEffect() }

// losesReply reports whether the caller never gets a reply.
func (i *Injection) losesReply() bool { return i != nil && i.Fault < DelayRequest }

// swallows reports whether the connection stays open without a reply.
func (i *Injection) swallows() bool {
	return i != nil && (i.Fault == SwallowRequest || i.Fault == SwallowReply)
}
