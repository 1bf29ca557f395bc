// Package activity counts a worker's jobs and time in the last ten minutes, for its
// heartbeat: jobs done and failed by kind with the distribution of their durations, the
// time of handlers by outcome, and the use of the slots. The reader of the heartbeats
// adds them up to figures of the fleet.
package activity

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// minutes is how far back the figures reach, up to a minute less.
const minutes = 10

// Effort is the outcome of a handler's time. The words are the same as in the observer of
// package delivery.
const (
	committed  = "committed"
	handedOver = "handed_over"
	failed     = "failed"
	redone     = "redone"
)

// Report is a worker's activity in the last ten minutes, or since it started. The zero
// value stands for a worker that reports none.
type Report struct {
	// Slots is how many jobs the worker runs at once; 0 if it does not say.
	Slots int

	// Times is the use of the slots.
	Times Times

	// Kinds are the kinds with activity, by name. The last one may be [MoreKinds], for
	// kinds that did not fit into the heartbeat.
	Kinds []Kind
}

// Kind has the counts and times of a kind's jobs.
type Kind struct {
	Name string

	// Done counts jobs that were committed, and Failed runs of handlers that failed.
	Done, Failed int

	// Efforts is the time of handlers that ended, by its outcome.
	Efforts Efforts

	// Durations are the run times of the jobs done, over all their deliveries.
	Durations Histogram
}

// Efforts is time of handlers by its outcome. The time of Committed and HandedOver is
// kept: its result or its state is recorded.
type Efforts struct{ Committed, HandedOver, Failed, Redone time.Duration }

func (e *Efforts) add(o Efforts) {
	e.Committed += o.Committed
	e.HandedOver += o.HandedOver
	e.Failed += o.Failed
	e.Redone += o.Redone
}

// add adds what happened to jobs of the same kind.
func (k *Kind) add(o Kind) {
	k.Done += o.Done
	k.Failed += o.Failed
	k.Efforts.add(o.Efforts)
	k.Durations.Merge(o.Durations)
}

// Meter measures a worker's activity. Its methods may be called from many goroutines.
type Meter struct {
	slots *Slots

	mu    sync.Mutex
	last  int64 // the present minute, since 1970
	ring  [minutes]map[string]*Kind
	marks [minutes]Times // of the slots, at the beginning of each minute
}

// NewMeter returns the meter of a worker with that many slots.
func NewMeter(slots int) *Meter {
	return &Meter{slots: NewSlots(slots), last: minuteOf(time.Now())}
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// Slots returns the meter's measure of the slots.
func (m *Meter) Slots() *Slots { return m.slots }

// Committed counts a job that is done, with the time of its handlers over all deliveries.
func (m *Meter) Committed(kind string, ran time.Duration) {
	m.count(kind, func(k *Kind) {
		k.Done++
		k.Durations.Add(ran)
	})
}

// Failed counts a run that failed.
func (m *Meter) Failed(kind string) { m.count(kind, func(k *Kind) { k.Failed++ }) }

// Spent adds the time of a handler.
func (m *Meter) Spent(kind, effort string, took time.Duration) {
	m.count(kind, func(k *Kind) {
		switch effort {
		case committed:
			k.Efforts.Committed += took
		case handedOver:
			k.Efforts.HandedOver += took
		case failed:
			k.Efforts.Failed += took
		case redone:
			k.Efforts.Redone += took
		}
	})
}

func (m *Meter) count(kind string, change func(*Kind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	at := m.last % minutes
	if m.ring[at] == nil {
		m.ring[at] = map[string]*Kind{}
	}
	k := m.ring[at][kind]
	if k == nil {
		k = &Kind{Name: kind}
		m.ring[at][kind] = k
	}
	change(k)
}

// advance empties the minutes that have begun since the last call. The caller holds mu.
func (m *Meter) advance() {
	now := minuteOf(time.Now())
	if now <= m.last { // also where the clock was set back
		return
	}
	times := m.slots.Times()
	for minute := max(m.last+1, now-minutes+1); minute <= now; minute++ {
		m.ring[minute%minutes] = nil
		m.marks[minute%minutes] = times
	}
	m.last = now
}

// Report returns the figures of the last ten minutes.
func (m *Meter) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	oldest := m.marks[(m.last+1)%minutes]
	r := Report{Slots: m.slots.total, Times: m.slots.Times().minus(oldest)}
	kinds := map[string]*Kind{}
	for _, minute := range m.ring {
		for name, k := range minute {
			if kinds[name] == nil {
				kinds[name] = &Kind{Name: name}
			}
			kinds[name].add(*k)
		}
	}
	for _, k := range kinds {
		r.Kinds = append(r.Kinds, *k)
	}
	slices.SortFunc(r.Kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	return r
}
