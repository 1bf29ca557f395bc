package imds

import (
	"net/http"
	"slices"
	"time"
)

// Guest is the service as one VM sees it, and what the service knows of that
// VM's requests.
type Guest struct {
	server *Server

	// The rest is guarded by server.mu.
	name     string
	vm       VM
	group    *group // nil until the VM was added
	present  bool
	requests int
	refused  int
	busiest  int
	recent   []Request
	arrived  window // every request
	accepted window // those within the limit
	served   map[string]time.Time
}

// Stats counts the requests of one VM.
type Stats struct {
	// Requests is how many arrived, and Throttled how many of them got 429.
	Requests  int
	Throttled int

	// BusiestSecond is the most requests that arrived in any one second.
	BusiestSecond int

	// Recent holds the latest requests, up to 1,024, oldest first.
	Recent []Request
}

// maxRecent bounds Stats.Recent: a quarter of an hour of polls.
const maxRecent = 1024

// Request is one request of a VM.
type Request struct {
	VM     string
	Method string
	Path   string // from /metadata on

	// Version is the api-version asked for, empty if there was none.
	Version string

	// N counts the VM's requests from 1, At is when this one arrived.
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
		Requests:      g.requests,
		Throttled:     g.refused,
		BusiestSecond: g.busiest,
		Recent:        slices.Clone(g.recent),
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

// arrive counts a request and reports whether the limit allows it.
func (g *Guest) arrive(r Request, limit int) (Request, bool) {
	g.requests++
	r.VM, r.N = g.name, g.requests
	g.busiest = max(g.busiest, g.arrived.count(r.At)+1)
	g.arrived.add(r.At)
	if len(g.recent) == maxRecent {
		g.recent = slices.Delete(g.recent, 0, 1)
	}
	g.recent = append(g.recent, r)

	if limit > 0 && g.accepted.count(r.At) >= limit {
		g.refused++
		return r, false
	}
	g.accepted.add(r.At)
	return r, true
}

// noteServed remembers the first delivery of each event.
func (g *Guest) noteServed(ids []string, at time.Time) {
	for _, id := range ids {
		if _, before := g.served[key(id)]; !before {
			g.served[key(id)] = at
		}
	}
}

// window counts what happened within the last second.
type window struct{ times []time.Time }

func (w *window) count(now time.Time) int {
	w.times = slices.DeleteFunc(w.times, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	return len(w.times)
}

func (w *window) add(now time.Time) { w.times = append(w.times, now) }
