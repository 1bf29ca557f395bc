package imds

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxBody bounds what a client may send: far more than any StartRequests.
const maxBody = 64 << 10

// call is a request on its way through the checks of the service.
type call struct {
	Request
	header http.Header
	query  url.Values
	body   []byte
}

// Handler serves every VM under /vms/<name>/metadata.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/vms/")
		name, path, found := strings.Cut(rest, "/")
		if !ok || !found || name == "" {
			refuse(http.StatusNotFound, "the path is to start with /vms/<name>/metadata").write(w, time.Now())
			return
		}
		s.VM(name).serve(w, r, "/"+path)
	})
}

// serve answers one request. A client that has gone away gets no answer, and
// neither does one whose request is to fail that way.
func (g *Guest) serve(w http.ResponseWriter, r *http.Request, path string) {
	ctx := r.Context()
	// Reading the body first lets net/http notice when the client goes away.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c := call{header: r.Header, query: r.URL.Query(), body: body}
	c.Request = Request{Method: r.Method, Path: path, Version: c.query.Get("api-version"), At: time.Now()}

	refusal, fault := g.admit(&c)
	if refusal != nil {
		g.tell(c.Request, *refusal)
		refusal.write(w, c.At)
		return
	}
	defer g.leave(c.Request)
	fault.strike(ctx)
	answer := fault.distort(func() reply { return g.answer(ctx, c) })
	made := time.Now()
	wait(ctx, fault.Hold)

	g.tell(c.Request, answer)
	answer.write(w, made)
}

// admit counts the request, refuses it if the VM is gone or asks too often, and
// otherwise asks what is to go wrong.
func (g *Guest) admit(c *call) (refusal *reply, fault Fault) {
	g.server.mu.Lock()
	request, allowed := g.arrive(c.Request)
	present, onRequest := g.present, g.server.onRequest
	g.server.mu.Unlock()

	c.Request = request
	switch {
	case !present:
		if allowed {
			g.leave(request)
		}
		return refuse(http.StatusNotFound, "the emulator has no VM of this name"), Fault{}
	case !allowed:
		return refuse(http.StatusTooManyRequests, "too many requests of this VM"), Fault{}
	case onRequest != nil:
		fault = onRequest(request)
	}
	return nil, fault
}

// answer is what the service says when nothing goes wrong on the way.
func (g *Guest) answer(ctx context.Context, c call) reply {
	root, below := c.route()
	switch root { // these two have errors of their own form
	case tokenPath:
		return g.token(c)
	case appServicePath:
		return g.appServiceToken(c)
	}
	if bad := c.checkOrigin(); bad != nil {
		return *bad
	}
	switch root {
	case "/metadata/versions":
		return c.versions()
	case "/metadata/scheduledevents":
		return g.scheduledEvents(ctx, c)
	case "/metadata/instance":
		return g.instance(c, below)
	default:
		return c.unknownPath()
	}
}

// route splits the path into the endpoint and what follows it. Only instance
// has paths below it.
func (c call) route() (root string, below []string) {
	const instance = "/metadata/instance"
	if rest, ok := strings.CutPrefix(c.Path, instance+"/"); ok {
		return instance, strings.Split(strings.TrimSuffix(rest, "/"), "/")
	}
	return c.Path, nil
}

// wait returns after d. If ctx ends first it does not return but cuts the
// connection: nobody is there to read an answer.
func wait(ctx context.Context, d time.Duration) {
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}
