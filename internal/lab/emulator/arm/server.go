package arm

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/pages"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// DefaultEvictionDelay is how long a Preempt takes to appear where no other
// time is given: the real service takes 30 s to 2.5 min, here a tenth of the
// shortest is enough to see that it does not come at once.
const DefaultEvictionDelay = 3 * time.Second

// Options describe an emulated resource manager. Only Metadata is required.
type Options struct {
	// Metadata has the VMs.
	Metadata *imds.Server

	// Evict is called when the Preempt of a VM is due. It is called from a
	// goroutine of its own, and [Server.Close] waits for it. Default:
	// Metadata.SimulateEviction.
	Evict func(vm string)

	// EvictionDelay is the time from the call to the Preempt. Default:
	// [DefaultEvictionDelay]. Negative: none.
	EvictionDelay time.Duration

	// PageSeed, if not 0, makes some pages of lists shorter or empty, with a link to the next
	// page. Default: each list is one page.
	PageSeed uint64
}

// Server is an emulated resource manager. It is safe for concurrent use.
type Server struct {
	options Options
	mux     *http.ServeMux
	pages   pages.Pages
	tokens  *token.Issuer // signs the tokens given at sign-in, and checks those of calls

	mu      sync.Mutex
	leaving map[string]bool // VMs whose Preempt is due, by lower-case name
	closed  bool

	over    chan struct{}  // closed by Close
	waiting sync.WaitGroup // for Preempts that are due
}

// New returns a resource manager for the VMs of a metadata service.
func New(options Options) *Server {
	options.EvictionDelay = cmp.Or(options.EvictionDelay, DefaultEvictionDelay)
	if options.Evict == nil {
		// An error means that the VM is already gone.
		options.Evict = func(vm string) { _, _ = options.Metadata.SimulateEviction(vm) }
	}
	s := &Server{
		options: options, mux: http.NewServeMux(), pages: pages.Pages{Seed: options.PageSeed}, tokens: token.NewIssuer(),
		leaving: map[string]bool{}, over: make(chan struct{}),
	}
	s.mux.HandleFunc("GET /metadata/endpoints", s.endpoints)
	s.mux.HandleFunc("GET /adfs/.well-known/openid-configuration", s.openID)
	s.mux.HandleFunc("POST /adfs/oauth2/token", s.signIn)
	s.mux.HandleFunc("/", s.manage)
	return s
}

// Handler serves the resource manager. Clients insist on TLS, for which package
// tlsca makes certificates.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		s.mux.ServeHTTP(w, r)
	})
}

// maxBody bounds the body of a request, in bytes: far more than any sign-in.
const maxBody = 64 << 10

// Close drops the Preempts that are not due yet, and returns when no call to
// Evict is running any more.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.over)
	}
	s.mu.Unlock()
	s.waiting.Wait()
}

// evictLater announces an eviction when its time has come.
func (s *Server) evictLater(vm string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(vm)
	if s.closed || s.leaving[name] {
		return
	}
	s.leaving[name] = true
	s.waiting.Go(func() {
		select {
		case <-time.After(s.options.EvictionDelay):
			s.options.Evict(vm)
		case <-s.over:
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.leaving, name)
	})
}
