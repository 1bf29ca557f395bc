package web

import (
	"net/url"
	"slices"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/actions"
)

// request is a request of operators to the workers.
type request struct {
	What, Who, End string // End is the address of the change that ends it
	Label          string
	At             time.Time
}

// Requests returns the requests of operators to the workers.
func (p *page) Requests() (all []request) {
	if p.state == nil || !p.Has(overview.PartSteering) {
		return nil
	}
	add := func(what, label, do, name string, m client.Mark) {
		r := request{What: what, Who: "by " + line(m.By), Label: label, At: m.At}
		if m.Reason != "" {
			r.Who += ": " + line(m.Reason)
		}
		names := map[string]string{"unpause": "kind", "resume": "worker", "free": "vm"}
		r.End = changeAddress(do, names[do], name)
		all = append(all, r)
	}
	s := p.Steering
	if s.Paused != nil {
		add("No worker claims", "Unpause", "unpause", "", *s.Paused)
	}
	for _, m := range s.PausedKinds {
		add("No job of kind "+line(m.Name)+" is started", "Unpause", "unpause", m.Name, m)
	}
	if s.AllDrained != nil {
		add("All workers are drained", "Resume", "resume", "", *s.AllDrained)
	}
	for _, m := range s.Drained {
		add("Worker "+line(m.Name)+" is drained", "Resume", "resume", m.Name, m)
	}
	for _, m := range s.Quarantined {
		add("VM "+line(m.Name)+" is quarantined", "Free", "free", m.Name, m)
	}
	return all
}

// changeAddress is the address of the question of a change.
func changeAddress(do, name, value string) string {
	q := url.Values{"do": {do}}
	if value != "" {
		q.Set(name, value)
	}
	return "/change?" + q.Encode()
}

// Handled returns the kinds that live workers have, by name.
func (p *page) Handled() (kinds []string) {
	if p.state == nil {
		return nil
	}
	for _, w := range p.Workers {
		if w.Life() == client.Alive {
			kinds = append(kinds, w.Kinds...)
		}
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	return kinds[:min(len(kinds), mostKinds)]
}

// button leads to the question of a change.
type button struct {
	Label, Address string
	Danger         bool   // it cannot be undone
	Off            string // why it cannot be used; empty if it can
}

// changesOf are the changes that a job's page offers. hasPayload says that something has its payload.
func changesOf(j client.Job, hasPayload bool) (all []button) {
	add := func(label, do string, danger bool) {
		all = append(all, button{Label: label, Address: changeAddress(do, "id", j.ID), Danger: danger})
	}
	switch j.Status { //nolint:exhaustive // others offer nothing
	case client.StatusOpen, client.StatusRunning:
		if j.Age() >= actions.OrphanIdle {
			add("Requeue", "requeue", false)
		}
		add("Cancel", "cancel", true)
	case client.StatusPoison:
		add("Replay", "replay", false)
		add("Purge", "purge", true)
	case client.StatusDone, client.StatusCancelled:
		if add("Run again", "again", true); !hasPayload {
			all[0].Off = "Its payload is not kept any longer: producer put --again takes it once more."
		}
	}
	return all
}

// changesOfVM are the changes that the page of workers offers for a VM.
func (v view) changesOfVM(vm overview.VM) (all []button) {
	has := func(marks []client.Mark, name string) bool {
		return slices.ContainsFunc(marks, func(m client.Mark) bool { return m.Name == name })
	}
	machine, lives, drained := "", 0, 0
	for _, w := range vm.Workers {
		machine = w.VM
		if w.Life() == client.Alive {
			lives++
			if has(v.Steering.Drained, w.Name) {
				drained++
			}
		}
	}
	add := func(label, do, of, name string) {
		all = append(all, button{Label: label, Address: changeAddress(do, of, name)})
	}
	name := vm.Name
	if machine != "" {
		name = machine
	}
	switch {
	case lives > drained && v.Steering.AllDrained == nil:
		add("Drain", "drain", "worker", name)
	case drained > 0:
		add("Resume", "resume", "worker", name)
	}
	switch {
	case machine == "":
	case has(v.Steering.Quarantined, machine):
		add("Free", "free", "vm", machine)
	case vm.Life != client.Ended:
		add("Quarantine", "quarantine", "vm", machine)
	}
	return all
}
