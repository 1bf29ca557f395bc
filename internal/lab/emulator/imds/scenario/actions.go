package scenario

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// action is the effect of a step.
type action interface {
	// validate reports the fault of the action at that time, and applies the action to
	// the model as to the service.
	validate(m *model, at int, now time.Duration) error

	// apply does it and returns a line for people.
	apply(p *Player) string
}

// verbs are the things that a step can be, in the order of the documentation.
var verbs = []struct {
	name string
	read func(jsonpos.Value) (action, error)
}{
	{"announce", readAnnounce},
	{"simulate_eviction", readEviction},
	{"start", readEvent(func(event place) action { return start{event} })},
	{"impact", readImpact},
	{"move", readMove},
	{"withdraw", readEvent(func(event place) action { return withdraw{event} })},
	{"complete", readEvent(func(event place) action { return complete{event} })},
	{"fault", readFault},
	{"add_vm", readAddVM},
	{"remove_vm", readRemoveVM},
	{"note", readNote},
}

func verbNames() string {
	var names []string
	for _, verb := range verbs {
		names = append(names, verb.name)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// readText reads the text that a step consists of.
func readText(n jsonpos.Value, what string) (place, error) {
	text, ok := n.Data.(string)
	if !ok || text == "" {
		return place{}, jsonpos.Errorf(n.Offset, "this is to be %s, as a text", what)
	}
	return place{n.Offset, text}, nil
}

// readEvent reads a step that names an event and says no more.
func readEvent(of func(event place) action) func(jsonpos.Value) (action, error) {
	return func(n jsonpos.Value) (action, error) {
		event, err := readText(n, "the name of an event that was announced")
		return of(event), err
	}
}

// announce lists an event.
type announce struct {
	name   place // empty if no other step refers to it
	vms    []place
	notice time.Duration // negative for the least of the type
	lasts  time.Duration // from its start until it is over; negative if a step ends it
	event  imds.Event    // without Resources and NotBefore
}

// eventTypes are Azure's types.
var eventTypes = []string{"Preempt", "Terminate", "Reboot", "Redeploy", "Freeze", "SpotRebalanceRecommendation"}

const maxNotice = 365 * 24 * time.Hour

func readAnnounce(n jsonpos.Value) (action, error) {
	f := object(n, "announce")
	a := announce{name: optionalName(f), vms: f.texts("vms")}
	a.event = imds.Event{ID: guid(f, "id"), Type: readType(f)}
	statuses := []string{"Scheduled", "Started", advised}
	if a.event.Type == advice {
		statuses = []string{advised}
	}
	a.event.Status = f.choice("status", statuses...)
	a.event.Source = f.choice("source", "Platform", "User")
	a.event.Description = f.text("description")
	a.event.Duration = f.duration("duration", 0, maxNotice, -1)
	a.notice = f.duration("notice", 0, maxNotice, -1)
	a.lasts = f.duration("completes_after", 0, maxTime, -1)
	if len(a.vms) == 0 {
		f.fail(jsonpos.Errorf(n.Offset, `"vms" is to name one VM at least`))
	}
	a.check(f)
	return a, f.done()
}

// readType reads the type of an event: a type of Azure, or any other.
func readType(f *fields) string {
	known, other := f.get("type"), f.get("other_type")
	switch {
	case known == nil && other == nil:
		f.fail(jsonpos.Errorf(f.of.Offset, `"type" is missing: one of %s; or "other_type" for one that Azure may have some day`,
			strings.Join(eventTypes, ", ")))
	case known != nil && other != nil:
		f.fail(jsonpos.Errorf(other.Offset, `give "type" or "other_type", not both`))
	case other != nil:
		return f.text("other_type")
	}
	return f.choice("type", eventTypes...)
}

// check says which fields do not go together.
func (a announce) check(f *fields) {
	e := a.event
	switch {
	case e.Type == "Preempt" && e.Duration >= 0:
		f.fail(jsonpos.Errorf(f.get("duration").Offset, "an eviction has no duration: nothing comes back from it"))
	case e.Duration > 0 && e.Duration%time.Second != 0:
		f.fail(jsonpos.Errorf(f.get("duration").Offset, "a duration is in whole seconds"))
	case e.Status == advised && a.lasts >= 0:
		f.fail(jsonpos.Errorf(f.get("completes_after").Offset, "an advice has no start to count from: complete it in a step"))
	case e.Status == "Started" && a.notice >= 0:
		f.fail(jsonpos.Errorf(f.get("notice").Offset, "an event that is Started from the outset has no notice"))
	}
}

// optionalName is the name by which other steps refer to an event.
func optionalName(f *fields) place {
	if f.get("event") == nil {
		return place{}
	}
	return f.placeOf("event")
}

func (a announce) apply(p *Player) string {
	e := a.event
	for _, vm := range a.vms {
		e.Resources = append(e.Resources, vm.text)
	}
	if a.notice >= 0 {
		e.NotBefore = time.Now().Add(a.notice)
	}
	return p.announced(a.name.text, p.server.Schedule(e), a.lasts)
}

// eviction announces a Preempt as `az vmss simulate-eviction` does.
type eviction struct{ name, vm place }

func readEviction(n jsonpos.Value) (action, error) {
	f := object(n, "simulate_eviction")
	e := eviction{name: optionalName(f), vm: f.placeOf("vm")}
	return e, f.done()
}

func (e eviction) apply(p *Player) string {
	id, err := p.server.SimulateEviction(e.vm.text)
	if err != nil {
		return err.Error() // validate has refused it
	}
	return p.announced(e.name.text, id, -1)
}

// start starts an event before its NotBefore.
type start struct{ event place }

func (a start) apply(p *Player) string {
	e, listed := p.server.Event(p.id(a.event))
	if !listed || e.Status == "Started" {
		return a.event.text + " cannot be started: a client acknowledged it before"
	}
	p.server.Start(e.ID)
	return a.event.text + " is started by the platform, before its time"
}

// move gives an event another NotBefore.
type move struct {
	event  place
	notice time.Duration
}

func readMove(n jsonpos.Value) (action, error) {
	f := object(n, "move")
	m := move{event: f.placeOf("event"), notice: f.duration("notice", 0, maxNotice, -1)}
	if m.notice < 0 {
		f.fail(jsonpos.Errorf(n.Offset, `"notice" is missing: the time from now to the new NotBefore`))
	}
	return m, f.done()
}

func (a move) apply(p *Player) string {
	notBefore := time.Now().Add(a.notice)
	if !p.server.Move(p.id(a.event), notBefore) {
		return a.event.text + " cannot be moved: it has started, as a client acknowledged it"
	}
	return fmt.Sprintf("%s is moved: not before %s, %s from now", a.event.text, clock(notBefore), a.notice)
}

// withdraw removes an event that has not started.
type withdraw struct{ event place }

func (a withdraw) apply(p *Player) string {
	if !p.server.Withdraw(p.id(a.event)) {
		return a.event.text + " cannot be withdrawn: it has started, as a client acknowledged it"
	}
	return a.event.text + " is withdrawn: it is not listed any more, and will not happen"
}

// complete removes an event that is over.
type complete struct{ event place }

func (a complete) apply(p *Player) string {
	p.server.Complete(p.id(a.event))
	return a.event.text + " is over: it is not listed any more"
}

// addVM adds a VM, or puts one back that was removed.
type addVM struct{ vm imds.VM }

func readAddVM(n jsonpos.Value) (action, error) {
	vm, err := parseVM(n)
	return addVM{vm}, err
}

func (a addVM) apply(p *Player) string {
	p.server.AddVM(a.vm)
	return fmt.Sprintf("VM %s is added", a.vm.Name)
}

// removeVM removes a VM, as an eviction finally does.
type removeVM struct{ vm place }

func readRemoveVM(n jsonpos.Value) (action, error) {
	vm, err := readText(n, "the name of a VM")
	return removeVM{vm}, err
}

func (a removeVM) apply(p *Player) string {
	p.server.RemoveVM(a.vm.text)
	return fmt.Sprintf("VM %s is taken away: its requests get %d from now on", a.vm.text, http.StatusNotFound)
}

// note prints a line.
type note struct{ text place }

func readNote(n jsonpos.Value) (action, error) {
	text, err := readText(n, "what is to be told")
	return note{text}, err
}

func (a note) apply(*Player) string { return a.text.text }
