package imds

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Schedule lists an event and returns its id. VMs in Resources that are not
// there yet see it as soon as they are added.
func (s *Server) Schedule(e Event) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schedule(e)
}

// SimulateEviction announces the eviction of a Spot VM as the platform does: a
// Preempt of this VM alone, from the Platform, with an empty Description, no
// known duration and 30 seconds of notice. The event stays Started until
// [Server.Complete]; taking the VM away is up to the caller. It is an error if
// there is no such VM or it is a Regular one.
func (s *Server) SimulateEviction(vm string) (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guest(vm)
	switch {
	case !g.exists:
		return "", fmt.Errorf("simulate eviction: there is no VM %q", vm)
	case !g.vm.Evictable():
		return "", fmt.Errorf("simulate eviction: VM %q has priority %s, only Spot VMs are evicted", vm, g.vm.Priority)
	}
	return s.schedule(Event{Type: typePreempt, Resources: []string{g.vm.Name}}), nil
}

// Start makes a Scheduled event Started, as an acknowledgement does. It reports
// whether the event is listed; starting one twice changes nothing, and neither
// does starting an advice.
func (s *Server) Start(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(id)
	if e != nil {
		e.start(time.Now())
	}
	return e != nil
}

// Withdraw removes an event that has not started, as the platform sometimes does. It reports whether it did; a Started event is left alone.
func (s *Server) Withdraw(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(id)
	if e == nil || e.Status == statusStarted {
		return false
	}
	s.unlist(e)
	return true
}

// Move gives an event that has not started another NotBefore, as when the
// platform puts it off. It reports whether it did: a Started event is left
// alone, and so is an advice, which has no start.
func (s *Server) Move(id string, notBefore time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(id)
	if e == nil || e.Status == statusStarted || e.Status == statusAdvisory {
		return false
	}
	e.NotBefore = notBefore
	for _, g := range e.groups {
		g.incarnation++
	}
	return true
}

// Complete removes an event that is over, and reports whether it was listed.
func (s *Server) Complete(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(id)
	if e != nil {
		s.unlist(e)
	}
	return e != nil
}

// Event returns the event as it stands now. It is not found once it was
// withdrawn or completed.
func (s *Server) Event(id string) (Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.event(id)
	if e == nil {
		return Event{}, false
	}
	return e.clone(), true
}

// clone returns the event as it stands, for somebody else.
func (e *listed) clone() Event {
	event := e.Event
	event.Resources = slices.Clone(e.Resources)
	return event
}

func (s *Server) schedule(event Event) (id string) {
	e := &listed{Event: event.withDefaults(time.Now())}
	s.events[strings.ToUpper(e.ID)] = e
	for _, resource := range e.Resources {
		if g := s.guests[key(resource)]; g != nil && g.group != nil {
			e.listIn(g.group)
		}
	}
	return e.ID
}

// event returns the event as of now, or nil.
func (s *Server) event(id string) *listed {
	e := s.events[strings.ToUpper(id)]
	if e != nil {
		e.advance(time.Now())
	}
	return e
}

func (s *Server) unlist(e *listed) {
	delete(s.events, strings.ToUpper(e.ID))
	for _, g := range e.groups {
		g.events = slices.DeleteFunc(g.events, func(other *listed) bool { return other == e })
		g.incarnation++
	}
}

// advance starts the event if its NotBefore has passed.
func (e *listed) advance(now time.Time) {
	if e.startsBy(now) {
		e.start(e.NotBefore)
	}
}

// start starts the event for all its Resources. An advice has no start.
func (e *listed) start(at time.Time) {
	if e.Status == statusStarted || e.Status == statusAdvisory {
		return
	}
	e.Status, e.StartedAt = statusStarted, at
	for _, g := range e.groups {
		g.incarnation++
	}
}

// document returns the group's document as version shows it, and the events in
// it.
func (g *group) document(version string, now time.Time) (doc documentJSON, shown []Event) {
	doc.Events = []eventJSON{} // an empty list, not null
	for _, e := range g.events {
		e.advance(now)
		if e.shownIn(version) {
			doc.Events = append(doc.Events, e.json(version))
			shown = append(shown, e.clone())
		}
	}
	doc.DocumentIncarnation = g.incarnation
	return doc, shown
}
