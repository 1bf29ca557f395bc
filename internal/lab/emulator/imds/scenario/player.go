package scenario

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// Player plays a scenario on a metadata service of its own.
type Player struct {
	scenario Scenario
	server   *imds.Server
	report   func(line string)
	narrator *narrator

	called     chan struct{} // closed at the first request for events
	calledOnce sync.Once
	changed    chan struct{} // holds one: a client acknowledged something

	mu           sync.Mutex
	activeFaults []*activeFault    // in the order of their steps
	ids          map[string]string // of this round's events, by the name in the scenario
	events       []*playedEvent    // of this round
}

// playedEvent is an event that the scenario announced. Its fields belong to the loop.
type playedEvent struct {
	id, name string
	lasts    time.Duration // from its start until it is over; negative if a step ends it
	started  bool          // as far as was printed
}

// New returns a player of s, whose VMs are there at once. out is called with
// every line, from several goroutines, and must not call back.
func New(s Scenario, out func(line string)) *Player {
	p := &Player{
		scenario: s, server: imds.New(s.Service), report: out,
		called: make(chan struct{}), changed: make(chan struct{}, 1), ids: map[string]string{},
	}
	p.narrator = newNarrator(p)
	p.server.OnRequest(p.onRequest)
	p.server.OnAnswer(p.narrator.observe)
	p.addVMs()
	return p
}

// Server is the metadata service on which the scenario is played.
func (p *Player) Server() *imds.Server { return p.server }

// Run plays until ctx ends or, with [End], to the end of the scenario.
func (p *Player) Run(ctx context.Context) {
	if p.scenario.FromFirstCall {
		select {
		case <-p.called:
			p.report("the first request for scheduled events has come: the scenario begins")
		case <-ctx.Done():
			return
		}
	}
	for round := 1; p.round(ctx); round++ {
		switch p.scenario.Then {
		case End:
			p.report("the scenario ends")
			return
		case Stay:
			p.report("the scenario is over; what is announced is served until the end")
			p.until(ctx, time.Time{})
			return
		case Repeat:
			p.reset()
			p.report(fmt.Sprintf("the scenario repeats: round %d", round+1))
		}
	}
}

// round takes the steps, each in its time, and reports whether it got to the
// end of the round.
func (p *Player) round(ctx context.Context) bool {
	begin := time.Now()
	for _, step := range p.scenario.steps {
		if !p.until(ctx, begin.Add(step.in)) {
			return false
		}
		p.report(step.apply(p))
	}
	return p.until(ctx, begin.Add(p.scenario.Length))
}

// until lets events start and end, and faults end, until the given time, zero
// for ever. It reports whether that came before the end of ctx.
func (p *Player) until(ctx context.Context, end time.Time) bool {
	for ctx.Err() == nil {
		now := time.Now()
		p.endFaults(now)
		p.followEvents(now)
		if !end.IsZero() && !now.Before(end) {
			return true
		}
		timer := time.NewTimer(p.next(now, end).Sub(now))
		select {
		case <-timer.C:
		case <-p.changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// idle is how long the loop sleeps at most when nothing is scheduled.
const idle = time.Hour

// next returns when something happens, at the latest at end if that is not zero.
func (p *Player) next(now, end time.Time) time.Time {
	next := now.Add(idle)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	if !end.IsZero() {
		sooner(end)
	}
	p.mu.Lock()
	for _, t := range p.activeFaults {
		sooner(t.ends)
	}
	p.mu.Unlock()
	for _, played := range p.events {
		switch e, listed := p.server.Event(played.id); {
		case !listed:
		case e.Status == "Scheduled":
			sooner(e.NotBefore)
		case e.Status == "Started" && played.lasts >= 0:
			sooner(e.StartedAt.Add(played.lasts))
		}
	}
	return next
}

// followEvents prints which events have reached their NotBefore, and ends events whose
// time is over.
func (p *Player) followEvents(now time.Time) {
	for _, played := range p.events {
		e, listed := p.server.Event(played.id)
		if !listed || e.Status != "Started" {
			continue
		}
		if !played.started && e.StartedAt.Equal(e.NotBefore) {
			p.report(fmt.Sprintf("%s is Started, as its NotBefore has come", played.name))
		}
		played.started = true
		if played.lasts >= 0 && !now.Before(e.StartedAt.Add(played.lasts)) {
			p.server.Complete(e.ID)
			p.report(fmt.Sprintf("%s is over, %s after its start: it is not listed any more", played.name, played.lasts))
		}
	}
}

// announced records an event that a step has listed, and returns the line about
// it.
func (p *Player) announced(name, id string, lasts time.Duration) string {
	e, _ := p.server.Event(id)
	if name == "" {
		name = "event " + id
	}
	p.mu.Lock()
	p.ids[name] = id
	p.mu.Unlock()
	p.events = append(p.events, &playedEvent{id: id, name: name, lasts: lasts, started: e.Status != "Scheduled"})

	line := fmt.Sprintf("%s is announced: %s of %s, %s", name, e.Type, strings.Join(e.Resources, ", "), e.Status)
	if e.Status == "Scheduled" {
		line += fmt.Sprintf(", not before %s, %s from now", clock(e.NotBefore), e.NotBefore.Sub(e.ScheduledAt).Round(time.Millisecond))
	}
	if e.Source == "User" {
		line += ", by a person"
	}
	return line
}

// id returns the id of the event that a step refers to.
func (p *Player) id(event place) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[event.text]
}

// nameOf returns the name of an event.
func (p *Player) nameOf(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, known := range p.ids {
		if strings.EqualFold(known, id) {
			return name
		}
	}
	return "event " + id
}

// reset restores the service to its first state, except for the incarnations,
// which keep counting.
func (p *Player) reset() {
	for _, played := range p.events {
		p.server.Complete(played.id)
	}
	p.mu.Lock()
	p.activeFaults, p.ids = nil, map[string]string{}
	p.mu.Unlock()
	p.events = nil
	p.narrator.newRound()
	p.server.LimitRequests(p.scenario.Service.RequestsPerSecond)
	for _, step := range p.scenario.steps {
		if added, ok := step.action.(addVM); ok {
			p.server.RemoveVM(added.vm.Name)
		}
	}
	p.addVMs()
}

func (p *Player) addVMs() {
	for _, vm := range p.scenario.VMs {
		p.server.AddVM(vm)
	}
}
