package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// requestFault makes requests fail for a while.
type requestFault struct {
	imds.Fault
	lasts    time.Duration
	limit    int     // requests per second, in place of a failure; 0 for none
	on       string  // one of endpoints
	every    int     // one matching request in so many
	vms      []place // none for all
	versions []string
}

// endpoints are the possible places of a fault, and the paths they begin with.
var endpoints = map[string][]string{
	"all":      {"/"},
	"events":   {"/metadata/scheduledevents"},
	"instance": {"/metadata/instance"},
	"tokens":   {"/metadata/identity", "/msi/token"},
}

func readFault(n jsonpos.Value) (action, error) {
	f := object(n, "fault")
	a := requestFault{
		Fault: imds.Fault{
			Status: f.number("status", 300, 599, 0), Location: f.text("location"), Hang: f.flag("hang"), Cut: f.flag("close"),
			Delay: f.duration("delay", 0, time.Hour, 0), Hold: f.duration("hold", 0, time.Hour, 0),
		},
		lasts: f.duration("for", time.Millisecond, maxTime, -1),
		limit: f.number("limit", 1, 1000, 0),
		on:    f.choice("on", "all", "events", "instance", "tokens"),
		every: f.number("every", 1, 1_000_000, 1),
		vms:   f.texts("vms"),
	}
	if f.get("body") != nil {
		a.Body = []byte(f.text("body"))
	}
	if size := f.number("body_size", 1, 16<<20, 0); size > 0 {
		a.Body = append(a.Body, strings.Repeat(" ", max(size-len(a.Body), 0))...)
	}
	for _, version := range f.texts("versions") {
		a.versions = append(a.versions, version.text)
	}
	f.fail(a.check(n.Offset))
	return a, f.done()
}

// check says which fields do not go together.
func (a requestFault) check(at int) error {
	failures := a.failures()
	switch {
	case a.lasts < 0:
		return jsonpos.Errorf(at, `"for" is missing: how long the fault lasts`)
	case failures > 1:
		return jsonpos.Errorf(at, `a fault is one of "hang", "close", "limit", or an answer ("status", "body", "body_size")`)
	case failures == 0 && a.Delay+a.Hold == 0:
		return jsonpos.Errorf(at, `nothing fails: give "status", "body", "hang", "close", "delay", "hold" or "limit"`)
	case a.Location != "" && a.Status/100 != 3:
		return jsonpos.Errorf(at, `"location" is for a "status" of 300 to 399`)
	case a.limit > 0 && (a.on != "all" || a.every > 1 || len(a.vms)+len(a.versions) > 0):
		return jsonpos.Errorf(at, `"limit" holds for every VM and all of the service`)
	}
	return nil
}

// failures is how many kinds of failure the fault asks for.
func (a requestFault) failures() (n int) {
	for _, is := range []bool{a.Hang, a.Cut, a.Status != 0 || a.Body != nil, a.limit > 0} {
		if is {
			n++
		}
	}
	return n
}

func (a requestFault) apply(p *Player) string {
	p.beginFault(&activeFault{requestFault: a})
	return fmt.Sprintf("for %s %s", a.lasts, a)
}

// String says what happens to requests.
func (a requestFault) String() string {
	what := "requests"
	if a.on != "all" {
		what = "requests for " + a.on
	}
	if a.every > 1 {
		what = fmt.Sprintf("one in %d of the %s", a.every, what)
	}
	if len(a.vms) > 0 {
		what += " of " + join(a.vms)
	}
	if len(a.versions) > 0 {
		what += " in version " + strings.Join(a.versions, ", ")
	}
	switch {
	case a.limit > 0:
		return fmt.Sprintf("more than %d requests of a VM in a second get 429", a.limit)
	case a.Hang:
		return what + " get no answer"
	case a.Cut:
		return what + " find the connection closed"
	case a.Body != nil:
		return fmt.Sprintf("%s get %d bytes that are no document%s", what, len(a.Body), a.late())
	case a.Status != 0:
		return fmt.Sprintf("%s get %d%s", what, a.Status, a.late())
	default:
		return what + " get their answers" + a.late()
	}
}

func (a requestFault) late() string {
	if d := a.Delay + a.Hold; d > 0 {
		return fmt.Sprintf(" %s late", d)
	}
	return ""
}

func join(places []place) string {
	var names []string
	for _, p := range places {
		names = append(names, p.text)
	}
	return strings.Join(names, ", ")
}

// activeFault is a fault that has started. It is guarded by Player.mu.
type activeFault struct {
	requestFault
	suspends bool // requests wait for the end
	ends     time.Time
	matched  map[string]int // requests by VM
}

// beginFault makes a fault take effect.
func (p *Player) beginFault(t *activeFault) {
	t.ends, t.matched = time.Now().Add(t.lasts), map[string]int{}
	p.mu.Lock()
	p.activeFaults = append(p.activeFaults, t)
	p.mu.Unlock()
	if t.limit > 0 {
		p.server.LimitRequests(t.limit)
	}
}

// matches reports whether the fault is for this request, which it counts.
func (t *activeFault) matches(r imds.Request) bool {
	switch {
	case t.limit > 0:
		return false
	case !slices.ContainsFunc(endpoints[t.on], func(prefix string) bool { return strings.HasPrefix(r.Path, prefix) }):
		return false
	case len(t.versions) > 0 && !slices.Contains(t.versions, r.Version):
		return false
	case len(t.vms) > 0 && !slices.ContainsFunc(t.vms, func(vm place) bool { return strings.EqualFold(vm.text, r.VM) }):
		return false
	}
	t.matched[r.VM]++
	return t.matched[r.VM]%t.every == 0
}

// impact suspends the VMs of a Started event, as its maintenance does.
type impact struct {
	event place
	lasts time.Duration
}

func readImpact(n jsonpos.Value) (action, error) {
	f := object(n, "impact")
	a := impact{event: f.placeOf("event"), lasts: f.duration("for", time.Millisecond, time.Hour, -1)}
	if a.lasts < 0 {
		f.fail(jsonpos.Errorf(n.Offset, `"for" is missing: how long the VMs are suspended`))
	}
	return a, f.done()
}

func (a impact) apply(p *Player) string {
	e, listed := p.server.Event(p.id(a.event))
	if !listed {
		return a.event.text + " has no impact: it is not listed any more"
	}
	suspended := requestFault{on: "all", every: 1, lasts: a.lasts}
	for _, vm := range e.Resources {
		suspended.vms = append(suspended.vms, place{text: vm})
	}
	p.beginFault(&activeFault{requestFault: suspended, suspends: true})
	return fmt.Sprintf("%s has an impact of %s: requests of %s wait for its end", a.event.text, a.lasts, strings.Join(e.Resources, ", "))
}

// onRequest returns the present fault of a request. Of several faults the earliest step's
// strikes.
func (p *Player) onRequest(r imds.Request) imds.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(r.Path, endpoints["events"][0]) {
		p.calledOnce.Do(func() { close(p.called) })
	}
	now := time.Now()
	for _, t := range p.activeFaults {
		if !now.Before(t.ends) || !t.matches(r) {
			continue
		}
		if t.suspends {
			return imds.Fault{Delay: t.ends.Sub(now)}
		}
		return t.Fault
	}
	return imds.Fault{}
}

// endFaults removes the faults that are over at now, and prints each.
func (p *Player) endFaults(now time.Time) {
	var over []*activeFault
	limit := p.scenario.Service.RequestsPerSecond
	p.mu.Lock()
	p.activeFaults = slices.DeleteFunc(p.activeFaults, func(t *activeFault) bool {
		if now.Before(t.ends) {
			limit = cmp.Or(t.limit, limit)
			return false
		}
		over = append(over, t)
		return true
	})
	p.mu.Unlock()
	if len(over) > 0 {
		p.server.LimitRequests(limit)
	}
	for _, t := range over {
		if t.suspends {
			p.report(fmt.Sprintf("the impact on %s is over", join(t.vms)))
		} else {
			p.report("it is over that " + t.String())
		}
	}
}
