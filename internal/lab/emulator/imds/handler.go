package imds

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds the body of a request: far more than any StartRequests.
const maxBody = 64 << 10

// call is a request with its parsed parts.
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

// serve answers one request. A client that has gone gets no answer, and neither does a
// request with the fault Hang or Cut.
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
		g.report(c.Request, *refusal)
		refusal.write(w, c.At)
		return
	}
	defer g.leave(c.Request)
	fault.strike(ctx)
	answer := fault.apply(func() reply { return g.answer(ctx, c) })
	made := time.Now()
	wait(ctx, fault.Hold)

	g.report(c.Request, answer)
	answer.write(w, made)
}

// admit counts the request, refuses it if the VM is gone or over its rate, and
// otherwise asks the hook for a fault.
func (g *Guest) admit(c *call) (refusal *reply, fault Fault) {
	g.server.mu.Lock()
	request, allowed := g.arrive(c.Request)
	present, onRequest := g.exists, g.server.onRequest
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

// answer returns the service's own reply, without faults.
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

// wait returns after d. If ctx ends first it panics with [http.ErrAbortHandler]: the
// client has gone.
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

const (
	contentJSON = "application/json; charset=utf-8"
	contentText = "text/plain; charset=utf-8"
)

// reply is an answer before it is sent.
type reply struct {
	status      int
	contentType string
	body        []byte
	allow       string   // the Allow header of a 405
	location    string   // where a redirect leads
	shows       []Event  // the events in the body
	approves    []string // ids of the events that StartRequests started
	problem     string   // of a refusal, as in its body
	faulty      bool     // a fault replaced the real answer
}

// write sends the reply with made as its Date.
func (r reply) write(w http.ResponseWriter, made time.Time) {
	header := w.Header()
	header.Set("Date", made.UTC().Format(http.TimeFormat))
	header.Set("Content-Length", strconv.Itoa(len(r.body)))
	if len(r.body) > 0 {
		header.Set("Content-Type", r.contentType)
	}
	if r.allow != "" {
		header.Set("Allow", r.allow)
	}
	if r.location != "" {
		header.Set("Location", r.location)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // the client may have gone
}

// jsonReply answers with v as the service writes JSON: on one line, with no
// character escaped that need not be.
func jsonReply(status int, v any) reply {
	var body strings.Builder
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(fmt.Sprintf("imds: encode an answer: %v", err)) // only our own types get here
	}
	return reply{status: status, contentType: contentJSON, body: []byte(strings.TrimSuffix(body.String(), "\n"))}
}

// errorJSON is the form of the service's error bodies.
type errorJSON struct {
	Error          string   `json:"error"`
	NewestVersions []string `json:"newest-versions,omitempty"`
}

func refuse(status int, format string, args ...any) *reply {
	problem := fmt.Sprintf(format, args...)
	r := jsonReply(status, errorJSON{Error: problem})
	r.problem = problem
	return &r
}

func methodNotAllowed(allow string) *reply {
	r := refuse(http.StatusMethodNotAllowed, "the method is not one of %s", allow)
	r.allow = allow
	return r
}

// Answer is the outcome of a request, for observers.
type Answer struct {
	Request

	// Sent is when the answer was sent.
	Sent time.Time

	// Status is the HTTP status, and Problem the error text of a refusal.
	Status  int
	Problem string

	// Faulty says that a [Fault] replaced the service's own answer.
	Faulty bool

	// Shown holds the events of the document that was served, as they stood.
	Shown []Event

	// Approved holds the ids of the events that the request started.
	Approved []string
}

// report records the events shown to the VM, and calls the observer.
func (g *Guest) report(r Request, answer reply) {
	now := time.Now()
	g.server.mu.Lock()
	g.noteServed(answer.shows, now)
	onAnswer := g.server.onAnswer
	g.server.mu.Unlock()
	if onAnswer == nil {
		return
	}
	onAnswer(Answer{
		Request: r, Sent: now, Status: answer.status, Problem: answer.problem, Faulty: answer.faulty,
		Shown: slices.Clone(answer.shows), Approved: slices.Clone(answer.approves),
	})
}

// checkOrigin refuses requests that may have been redirected to the service: requests
// without Metadata: true, or forwarded by a proxy.
func (c call) checkOrigin() *reply {
	switch {
	case !c.hasMetadataHeader():
		return refuse(http.StatusBadRequest, "the header Metadata: true is missing")
	case len(c.header.Values("X-Forwarded-For")) > 0:
		return refuse(http.StatusBadRequest, "X-Forwarded-For is not allowed: do not use a proxy")
	}
	for name, values := range c.query {
		if len(values) > 1 {
			return refuse(http.StatusBadRequest, "the parameter %s is given more than once", name)
		}
	}
	return nil
}

func (c call) hasMetadataHeader() bool { return strings.EqualFold(c.header.Get("Metadata"), "true") }

// checkVersion wants one of the supported api-versions. A missing or malformed version is
// a bad request, and the answer lists the newest. An unknown version is not found, which
// clients take as a reason to ask for an older one.
func (c call) checkVersion(supported []string) *reply {
	if slices.Contains(supported, c.Version) {
		return nil
	}
	if _, err := time.Parse(time.DateOnly, c.Version); err == nil {
		return refuse(http.StatusNotFound, "there is no api-version %s here", c.Version)
	}
	const problem = "api-version is missing or is none"
	r := jsonReply(http.StatusBadRequest, errorJSON{Error: problem, NewestVersions: newest(instanceVersions, 3)})
	r.problem = problem
	return &r
}

// unknownPath is the answer to a path that no endpoint has. The version is
// checked first, as on Azure.
func (c call) unknownPath() reply {
	if bad := c.checkVersion(allVersions()); bad != nil {
		return *bad
	}
	return *refuse(http.StatusNotFound, "there is nothing at this path")
}

// versions answers /metadata/versions, the one endpoint without a version.
func (c call) versions() reply {
	if c.Method != http.MethodGet {
		return *methodNotAllowed(http.MethodGet)
	}
	return jsonReply(http.StatusOK, map[string][]string{"apiVersions": allVersions()})
}

// allVersions returns the versions of all endpoints, oldest first, each once.
func allVersions() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(eventsVersions, instanceVersions, tokenVersions))))
}

// newest returns the last n of versions, newest first.
func newest(versions []string, n int) []string {
	latest := slices.Clone(versions[len(versions)-n:])
	slices.Reverse(latest)
	return latest
}
