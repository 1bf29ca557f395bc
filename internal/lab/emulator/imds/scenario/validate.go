package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// advice is the type of an advice, and advised the status of one.
const (
	advice  = "SpotRebalanceRecommendation"
	advised = "Advisory"
)

// leastNotice is how long the emulator announces an event before its NotBefore
// if the step does not say.
var leastNotice = map[string]time.Duration{
	"Preempt": 30 * time.Second, "Terminate": 5 * time.Minute,
	"Redeploy": 10 * time.Minute, "Reboot": 15 * time.Minute, "Freeze": 15 * time.Minute,
}

// model is the state of VMs and events that validation works on. Clients do nothing
// in it.
type model struct {
	preview bool
	vms     map[string]imds.VM // that are there, by lower-case name
	events  map[string]*modelEvent
}

// modelEvent is an event of a model.
type modelEvent struct {
	listed   bool
	advice   bool
	startsAt time.Duration // unless it is an advice
	lasts    time.Duration // from its start until it is over; negative if a step ends it
}

func (e *modelEvent) startedBy(now time.Duration) bool { return !e.advice && now >= e.startsAt }

func (e *modelEvent) listedAt(now time.Duration) bool {
	return e.listed && (e.lasts < 0 || !e.startedBy(now) || now < e.startsAt+e.lasts)
}

// validate applies the steps to a model and returns an error for the first that is
// not possible.
func (s Scenario) validate() error {
	m := &model{preview: s.Service.PreviewEvents, vms: map[string]imds.VM{}, events: map[string]*modelEvent{}}
	for _, vm := range s.VMs {
		m.vms[strings.ToLower(vm.Name)] = vm
	}
	for _, step := range s.steps {
		if err := step.validate(m, step.at, step.in); err != nil {
			return err
		}
	}
	return nil
}

// vm returns the VM that is there under that name.
func (m *model) vm(name place) (imds.VM, error) {
	vm, ok := m.vms[strings.ToLower(name.text)]
	if !ok {
		return vm, jsonpos.Errorf(name.at, "there is no VM %s at that time; there are %s", name.text,
			strings.Join(slices.Sorted(maps.Keys(m.vms)), ", "))
	}
	return vm, nil
}

// event returns an event that is listed.
func (m *model) event(name place, now time.Duration) (*modelEvent, error) {
	e := m.events[name.text]
	switch {
	case e == nil:
		return nil, jsonpos.Errorf(name.at, "no event %s was announced before this step", name.text)
	case !e.listedAt(now):
		return nil, jsonpos.Errorf(name.at, "event %s is not listed any more at that time", name.text)
	}
	return e, nil
}

// waiting returns an event that has not started, for a step that does something
// to it.
func (m *model) waiting(name place, now time.Duration, what string) (*modelEvent, error) {
	e, err := m.event(name, now)
	switch {
	case err != nil:
		return nil, err
	case e.startedBy(now):
		return nil, jsonpos.Errorf(name.at, "event %s has started by then and cannot be %s", name.text, what)
	}
	return e, nil
}

// list adds an event under a name, which may be empty.
func (m *model) list(name place, e *modelEvent) error {
	if name.text == "" {
		return nil
	}
	if m.events[name.text] != nil {
		return jsonpos.Errorf(name.at, "there is an event %s already: names are used once", name.text)
	}
	e.listed = true
	m.events[name.text] = e
	return nil
}

func (a announce) validate(m *model, at int, now time.Duration) error {
	for _, name := range a.vms {
		vm, err := m.vm(name)
		if err != nil {
			return err
		}
		switch {
		case a.event.Type == "Preempt" && vm.Priority == "Regular":
			return jsonpos.Errorf(name.at, "VM %s has priority Regular, only Spot VMs are evicted", vm.Name)
		case a.event.Type == "Terminate" && vm.Priority != "Regular":
			return jsonpos.Errorf(name.at, "VM %s has priority %s; termination is announced to Regular VMs only", vm.Name, vm.Priority)
		}
	}
	if a.event.Status == advised && !m.preview {
		return jsonpos.Errorf(at, `an advice is shown in the preview version only: set "preview": true in "service"`)
	}
	e := &modelEvent{advice: a.event.Status == advised, startsAt: now + a.notice, lasts: a.lasts}
	switch {
	case a.event.Status == "Started":
		e.startsAt = now
	case a.notice < 0:
		e.startsAt = now + leastNotice[a.event.Type]
	}
	return m.list(a.name, e)
}

func (e eviction) validate(m *model, _ int, now time.Duration) error {
	vm, err := m.vm(e.vm)
	if err != nil {
		return err
	}
	if vm.Priority == "Regular" {
		return jsonpos.Errorf(e.vm.at, "VM %s has priority Regular, only Spot VMs are evicted", vm.Name)
	}
	return m.list(e.name, &modelEvent{startsAt: now + leastNotice["Preempt"], lasts: -1})
}

func (a start) validate(m *model, _ int, now time.Duration) error {
	e, err := m.waiting(a.event, now, "started")
	if err != nil {
		return err
	}
	if e.advice {
		return jsonpos.Errorf(a.event.at, "%s is an advice, which has no start", a.event.text)
	}
	e.startsAt = now
	return nil
}

func (a move) validate(m *model, _ int, now time.Duration) error {
	e, err := m.waiting(a.event, now, "moved")
	if err != nil {
		return err
	}
	if e.advice {
		return jsonpos.Errorf(a.event.at, "%s is an advice, which has no start to be moved", a.event.text)
	}
	e.startsAt = now + a.notice
	return nil
}

func (a withdraw) validate(m *model, _ int, now time.Duration) error {
	e, err := m.waiting(a.event, now, "withdrawn")
	if err == nil {
		e.listed = false
	}
	return err
}

func (a complete) validate(m *model, _ int, now time.Duration) error {
	e, err := m.event(a.event, now)
	switch {
	case err != nil:
		return err
	case !e.advice && !e.startedBy(now):
		return jsonpos.Errorf(a.event.at, `event %s has not started by then: withdraw it, or announce it with "completes_after"`, a.event.text)
	}
	e.listed = false
	return nil
}

func (a impact) validate(m *model, _ int, now time.Duration) error {
	e, err := m.event(a.event, now)
	switch {
	case err != nil:
		return err
	case !e.startedBy(now):
		return jsonpos.Errorf(a.event.at, "event %s has not started by then, so there is no impact yet", a.event.text)
	}
	return nil
}

func (a requestFault) validate(m *model, _ int, _ time.Duration) error {
	for _, name := range a.vms {
		if _, err := m.vm(name); err != nil {
			return err
		}
	}
	return nil
}

func (a addVM) validate(m *model, at int, _ time.Duration) error {
	name := strings.ToLower(a.vm.Name)
	if _, there := m.vms[name]; there {
		return jsonpos.Errorf(at, "VM %s is there already at that time", a.vm.Name)
	}
	m.vms[name] = a.vm
	return nil
}

func (a removeVM) validate(m *model, _ int, _ time.Duration) error {
	_, err := m.vm(a.vm)
	delete(m.vms, strings.ToLower(a.vm.text))
	return err
}

func (note) validate(*model, int, time.Duration) error { return nil }

// clock writes a time of day as NotBefore does, for people.
func clock(t time.Time) string { return fmt.Sprintf("%s GMT", t.UTC().Format(time.TimeOnly)) }
