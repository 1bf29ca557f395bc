package imds

import (
	"net/http"
	"slices"
	"time"
)

// Guest is the service as one VM sees it, and the record of that VM's requests.
type Guest struct {
	server *Server
	secret string // of IDENTITY_HEADER

	// The rest is guarded by server.mu.
	name     string
	vm       VM
	group    *group // nil until the VM was added
	exists   bool
	metadata traffic // everything but tokens
	tokens   traffic
	recent   []Request
	served   map[string]time.Time
}

// Stats counts the requests of one VM.
type Stats struct {
	// Requests is how many arrived, and Throttled how many of them got 429.
	// Requests for tokens, which have limits of their own, are not among them.
	Requests  int
	Throttled int

	// BusiestSecond is the most requests that arrived in any one second.
	BusiestSecond int

	// TokenRequests is how many requests for tokens arrived, and
	// TokensThrottled how many of them got 429.
	TokenRequests   int
	TokensThrottled int

	// Recent holds the latest requests of all kinds, up to 1,024, oldest first.
	Recent []Request
}

// maxRecent bounds Stats.Recent: a quarter of an hour of polls.
const maxRecent = 1024

// Request is one request of a VM.
type Request struct {
	VM     string
	Method string
	Path   string // from /metadata on, or /msi/token

	// Version is the api-version asked for, empty if there was none.
	Version string

	// N counts the VM's requests from 1, requests for tokens apart. At is when this one
	// arrived.
	N  int
	At time.Time
}

// Handler serves this VM alone, with paths that start at /metadata.
func (g *Guest) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.serve(w, r, r.URL.Path)
	})
}

// RoundTripper serves this VM alone in the goroutine of the caller, without
// sockets. The host in the URL is not looked at.
func (g *Guest) RoundTripper() http.RoundTripper { return inProcess{g.Handler()} }

// Stats returns the counts so far.
func (g *Guest) Stats() Stats {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	return Stats{
		Requests:        g.metadata.requests,
		Throttled:       g.metadata.refused,
		BusiestSecond:   g.metadata.busiest,
		TokenRequests:   g.tokens.requests,
		TokensThrottled: g.tokens.refused,
		Recent:          slices.Clone(g.recent),
	}
}

// FirstServed returns when a document with the event was first handed to this
// VM, and whether one was.
func (g *Guest) FirstServed(eventID string) (time.Time, bool) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	at, ok := g.served[key(eventID)]
	return at, ok
}

// arrive counts a request and reports whether the limits allow it. An allowed
// request must be ended with leave.
func (g *Guest) arrive(r Request) (Request, bool) {
	o := g.server.options
	t := g.traffic(r.Path)
	var allowed bool
	switch r.Path {
	case tokenPath:
		allowed = t.arrive(r.At, o.TokensPerSecond, o.TokensAtOnce)
	case appServicePath:
		allowed = t.arrive(r.At, 0, 0) // not the metadata service's
	default:
		allowed = t.arrive(r.At, o.RequestsPerSecond, 0)
	}
	r.VM, r.N = g.name, t.requests
	if len(g.recent) == maxRecent {
		g.recent = slices.Delete(g.recent, 0, 1)
	}
	g.recent = append(g.recent, r)
	return r, allowed
}

// leave ends a request that was allowed.
func (g *Guest) leave(r Request) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.traffic(r.Path).open--
}

func (g *Guest) traffic(path string) *traffic {
	if path == tokenPath || path == appServicePath {
		return &g.tokens
	}
	return &g.metadata
}

// noteServed records the first delivery of each event.
func (g *Guest) noteServed(events []Event, at time.Time) {
	for _, e := range events {
		if _, before := g.served[key(e.ID)]; !before {
			g.served[key(e.ID)] = at
		}
	}
}

// traffic counts the requests of one kind from one VM.
type traffic struct {
	requests int
	refused  int
	busiest  int
	open     int    // accepted and not answered yet
	arrived  window // every request
	accepted window // those within the limits
}

// arrive counts a request and reports whether it is within the limits: so many
// in a second, and so many at once; none if they are not positive.
func (t *traffic) arrive(now time.Time, perSecond, atOnce int) bool {
	t.requests++
	t.busiest = max(t.busiest, t.arrived.count(now)+1)
	t.arrived.add(now)
	if perSecond > 0 && t.accepted.count(now) >= perSecond || atOnce > 0 && t.open >= atOnce {
		t.refused++
		return false
	}
	t.accepted.add(now)
	t.open++
	return true
}

// window counts what happened within the last second.
type window struct{ times []time.Time }

func (w *window) count(now time.Time) int {
	w.times = slices.DeleteFunc(w.times, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	return len(w.times)
}

func (w *window) add(now time.Time) { w.times = append(w.times, now) }
