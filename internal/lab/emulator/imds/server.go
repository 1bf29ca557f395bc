package imds

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// Options are the limits of an emulated service, and who signs its tokens. The
// zero value has the limits of the real one, but for the delay of the first
// call.
type Options struct {
	// RequestsPerSecond is how many requests a VM may send in any one second
	// before it gets 429. Default: 5. Negative: no limit.
	RequestsPerSecond int

	// FirstCallDelay is how long scheduled events take to be switched on for a
	// scale set, from the first call of any of its VMs; calls until then wait.
	// On Azure up to two minutes. Default: none.
	FirstCallDelay time.Duration

	// PreviewEvents serves also the preview version of scheduled events, which
	// adds rebalance recommendations. Default: it is not found, as where the
	// preview has not arrived.
	PreviewEvents bool

	// TokensPerSecond and TokensAtOnce are how many requests for tokens a VM
	// may send in any one second, and have open at once, before it gets 429.
	// Defaults: 20 and 5. Negative: no limit.
	TokensPerSecond, TokensAtOnce int

	// Tokens signs the tokens of the VMs' identities; storage that is to
	// accept them gets the same one. Default: one of its own, whose tokens
	// no service accepts.
	Tokens *token.Issuer

	// TokenLife is how long a token is good. Default: 24 hours.
	TokenLife time.Duration
}

// defaultRequestsPerSecond is the documented limit of the service, for one VM.
const defaultRequestsPerSecond = 5

// Server is an emulated metadata service. Its methods may be called at any
// time, also while it serves. It starts no goroutines and needs no closing: an event
// whose time has come starts when a request or a method reads it.
type Server struct {
	options Options

	mu        sync.Mutex
	guests    map[string]*Guest // by key of the name; removed VMs stay, for their counters
	groups    map[string]*group
	events    map[string]*listed // by upper-case id
	onRequest func(Request) Fault
	onAnswer  func(Answer)
}

// group is the set of VMs that see one document.
type group struct {
	incarnation int
	events      []*listed // in the order of listing
	askedAt     time.Time // of the last call for events; zero before the first
	enabledAt   time.Time // once asked
}

// listed is an event that is in the documents of its groups.
type listed struct {
	Event
	groups []*group
}

// New returns a server without VMs.
func New(options Options) *Server {
	options.RequestsPerSecond = cmp.Or(options.RequestsPerSecond, defaultRequestsPerSecond)
	options.TokensPerSecond = cmp.Or(options.TokensPerSecond, 20)
	options.TokensAtOnce = cmp.Or(options.TokensAtOnce, 5)
	options.TokenLife = cmp.Or(options.TokenLife, 24*time.Hour)
	if options.Tokens == nil {
		options.Tokens = token.NewIssuer()
	}
	return &Server{
		options: options,
		guests:  map[string]*Guest{},
		groups:  map[string]*group{},
		events:  map[string]*listed{},
	}
}

// AddVM adds a VM, or replaces the description of the VM with that name, and returns its
// side of the service. It shows events that name the VM already. It panics if the name is
// empty or has a slash, which no VM's name has.
func (s *Server) AddVM(vm VM) *Guest {
	if vm.Name == "" || strings.Contains(vm.Name, "/") {
		panic("imds: AddVM wants a name without slashes, not " + vm.Name)
	}
	vm = vm.withDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guest(vm.Name)
	g.name, g.vm, g.group, g.exists = vm.Name, vm, s.group(groupOf(vm)), true
	for _, e := range slices.SortedFunc(maps.Values(s.events), byScheduledAt) {
		if e.names(vm.Name) {
			e.listIn(g.group)
		}
	}
	return g
}

// RemoveVM removes a VM. Its requests fail from now on; its counters can
// still be read. Events that name it stay until they are completed.
func (s *Server) RemoveVM(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guest(name).exists = false
}

// VMs returns the descriptions of the present VMs, with defaults, in the order of
// their names.
func (s *Server) VMs() []VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	var vms []VM
	for _, name := range slices.Sorted(maps.Keys(s.guests)) {
		if g := s.guests[name]; g.exists {
			vms = append(vms, g.vm)
		}
	}
	return vms
}

// VM returns the side of the service that the named VM sees. While there is no
// such VM its requests fail.
func (s *Server) VM(name string) *Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest(name)
}

// OnRequest installs a function that returns the fault of every request within the
// rate limit; the zero [Fault] is none. It is called from the goroutine of the
// request and may call the server. Nil removes it.
func (s *Server) OnRequest(f func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = f
}

// OnAnswer installs a function that is called with the outcome of every request
// that got an answer, from the goroutine of the request and before the
// answer is sent, and may call the server. Nil removes it.
func (s *Server) OnAnswer(f func(Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAnswer = f
}

// LimitRequests sets how many requests a VM may send in any one second from now
// on, as [Options.RequestsPerSecond] does; 0 is the default again.
func (s *Server) LimitRequests(perSecond int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.RequestsPerSecond = cmp.Or(perSecond, defaultRequestsPerSecond)
}

// guest returns the guest of that name, a new absent one if there is none.
// The caller holds s.mu, here and below.
func (s *Server) guest(name string) *Guest {
	g := s.guests[key(name)]
	if g == nil {
		g = &Guest{server: s, name: name, secret: uuid.NewString(), served: map[string]time.Time{}}
		s.guests[key(name)] = g
	}
	return g
}

func (s *Server) group(name string) *group {
	g := s.groups[name]
	if g == nil {
		g = &group{incarnation: 1}
		s.groups[name] = g
	}
	return g
}

// names reports whether the event is about the VM.
func (e *listed) names(vm string) bool {
	return slices.ContainsFunc(e.Resources, func(r string) bool { return strings.EqualFold(r, vm) })
}

func byScheduledAt(a, b *listed) int { return a.ScheduledAt.Compare(b.ScheduledAt) }

// listIn puts the event into the document of g, once.
func (e *listed) listIn(g *group) {
	if slices.Contains(e.groups, g) {
		return
	}
	e.groups = append(e.groups, g)
	g.events = append(g.events, e)
	g.incarnation++
}
