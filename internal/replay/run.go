package replay

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"time"

	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// task is a job.
type task struct {
	recorded time.Duration // work that is recorded
	put      time.Duration
	done     time.Duration // when it was done; 0 if it is not
	runs     int
	released int  // times
	dirty    bool // its last run ended without a word
	moved    bool // it runs on regular VMs
	first    bool // it is on the queue First
	lost     time.Duration
	lastEnd  End
}

// slot is the place of a job on a VM.
type slot struct {
	lane int
	vm   life
}

// kinds of events, in the order in which they happen at one moment.
const (
	freed   = iota // a slot
	visible        // a job
)

// event is a moment at which something changes.
type event struct {
	at   time.Duration
	kind int
	n    int // order of events at one moment, and the number of the job
	slot slot
}

// agenda holds events in the order of time.
type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	switch {
	case a[i].at != a[j].at:
		return a[i].at < a[j].at
	case a[i].kind != a[j].kind:
		return a[i].kind < a[j].kind
	}
	return a[i].n < a[j].n
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// pool is one kind of VMs, Spot or regular, with the jobs that wait for it.
type pool struct {
	free    []slot
	waiting []int // numbers of jobs, in the order in which they became visible
	first   []int // the same on the queue First
	inRow   int   // claims from First since one from the other queue
}

// take returns the job that is claimed next; ok is false if none waits.
func (p *pool) take() (next int, ok bool) {
	from := &p.waiting
	if len(p.first) > 0 && (len(p.waiting) == 0 || p.inRow < intake.MostInRow) {
		from = &p.first
		p.inRow++
	} else {
		p.inRow = 0
	}
	if len(*from) == 0 {
		return 0, false
	}
	next, *from = (*from)[0], (*from)[1:]
	return next, true
}

// simulation is a replay that runs.
type simulation struct {
	scenario Scenario
	worker   worker
	random   *rand.Rand
	lanes    [][]life
	spot     int // the first so many lanes; the others are regular VMs
	tasks    []task
	agenda   agenda
	pools    [2]pool
	left     int // jobs that are not done
	tally    *tally
}

// Run replays a scenario.
//
// The model around the worker's decisions: a VM is paid for while it lives, takes work after
// its boot, and is replaced at once, but for recorded fleets. A worker with a free slot polls
// its queue as package intake says, and a busy one takes the next message at once. Messages of a queue are
// claimed in the order in which they became visible. A job that is released is put before a backlog by the
// workers' rule; the regular VMs have one queue. A call of storage takes 20 ms and never fails. A
// handler returns at once when it is stopped, has a new state at any moment, and stands still
// while one is saved. The message of a dead VM is visible again when its visibility ends, which
// was renewed every third of it. No job is given up.
func Run(ctx context.Context, s Scenario) (*Report, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	horizon := s.For.Duration
	lanes, err := s.Fleet.draw(horizon, rand.New(rand.NewPCG(s.Seed, 1)))
	if err != nil {
		return nil, err
	}
	spot := len(lanes) - s.Fleet.Fixed
	sim := &simulation{
		scenario: s, lanes: lanes, spot: spot, random: rand.New(rand.NewPCG(s.Seed, 2)), tally: newTally(s, lanes, spot),
		tasks:  s.tasks(lanes[:spot]),
		worker: worker{policy: s.Policy, saves: s.Policy.checkpoints(), work: s.Work, losses: observe(lanes[:spot], horizon), horizon: horizon},
	}
	sim.putAll()
	sim.open()
	for steps := 0; len(sim.agenda) > 0; steps++ {
		if steps%4096 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e := heap.Pop(&sim.agenda).(event)
		if e.at >= horizon || sim.left == 0 {
			break
		}
		sim.step(e)
	}
	return sim.tally.report(sim.tasks), nil
}

// tasks makes the jobs for Spot VMs with those lives.
func (s Scenario) tasks(lanes [][]life) []task {
	n, every := s.Work.Jobs, time.Duration(0)
	if horizon := s.For.Duration; n == 0 {
		room := time.Duration(0)
		for _, lane := range lanes {
			for _, l := range lane {
				room += max(0, min(l.end, horizon)-l.ready)
			}
		}
		n = max(1, int(room.Seconds()*float64(s.Fleet.Slots)*s.Work.Load/s.Work.Length.Seconds()))
		every = horizon / time.Duration(n)
	}
	tasks := make([]task, n)
	for i := range tasks {
		tasks[i].put = time.Duration(i) * every
	}
	return tasks
}

// putAll puts the jobs.
func (s *simulation) putAll() {
	s.left = len(s.tasks)
	for i, t := range s.tasks {
		s.agenda = append(s.agenda, event{at: t.put, kind: visible, n: i})
	}
	heap.Init(&s.agenda)
}

// open lets all VMs offer their slots once their worker runs.
func (s *simulation) open() {
	for lane, lives := range s.lanes {
		for _, vm := range lives {
			for range s.scenario.Fleet.Slots {
				if vm.ready < min(s.scenario.Policy.leaves(vm), s.scenario.For.Duration) {
					heap.Push(&s.agenda, event{at: vm.ready, kind: freed, slot: slot{lane: lane, vm: vm}})
				}
			}
		}
	}
}

// step lets an event happen.
func (s *simulation) step(e event) {
	if e.kind == freed {
		p := s.poolOf(e.slot.lane >= s.spot)
		if next, ok := p.take(); ok {
			s.start(next, e.slot, e.at)
		} else {
			p.free = append(p.free, e.slot)
		}
		return
	}
	t := &s.tasks[e.n]
	p := s.poolOf(t.moved)
	polled := e.at + s.poll(len(p.free))
	if polled >= s.scenario.For.Duration {
		return
	}
	for len(p.free) > 0 {
		at := s.random.IntN(len(p.free))
		chosen := p.free[at]
		p.free[at] = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		if polled < s.scenario.Policy.leaves(chosen.vm) {
			s.start(e.n, chosen, polled)
			return
		}
	}
	slots := s.spot * s.scenario.Fleet.Slots // which all run jobs then
	b := drain.Backlog{Messages: slots + len(p.waiting), Slots: slots, Queues: 1, Usual: s.scenario.Work.Length.Duration}
	if t.first = !t.moved && (t.first || t.lastEnd == Released && !s.scenario.Policy.Hold && b.IsLong()); t.first {
		p.first = append(p.first, e.n)
		return
	}
	p.waiting = append(p.waiting, e.n)
}

func (s *simulation) poolOf(regular bool) *pool {
	if regular {
		return &s.pools[1]
	}
	return &s.pools[0]
}

// poll draws how long a message waits for the next poll of idle workers: each polls at a
// random moment of its interval.
func (s *simulation) poll(idle int) time.Duration {
	if idle == 0 {
		return 0
	}
	workers := max(1, idle/s.scenario.Fleet.Slots)
	every := intake.Polling{Queues: 1, Fleet: workers}.Interval()
	jitter := retry.Jitter{Random: func(n time.Duration) time.Duration { return time.Duration(s.random.Int64N(int64(n))) }}
	first := every
	for range min(workers, 32) {
		first = min(first, jitter.Spread(every))
	}
	return first + callTime
}

// start lets a job run on a slot from at, and puts its end on the agenda.
func (s *simulation) start(n int, place slot, at time.Duration) {
	t := &s.tasks[n]
	s.tally.claimed(t, at)
	a := s.worker.run(at, t.recorded, t.runs > 0, t.dirty, place.vm)
	t.runs++
	t.recorded += a.kept
	t.dirty = a.end == Died && a.saves == 0
	s.tally.ran(n, place.lane, a)
	switch a.end {
	case Cut:
	case Done:
		t.done = a.to
		s.left--
		if a.to < s.scenario.Policy.leaves(place.vm) {
			heap.Push(&s.agenda, event{at: a.to, kind: freed, slot: place})
		}
	case Released, Died:
		t.lost, t.lastEnd = a.lost, a.end
		if a.end == Released {
			if t.released++; s.scenario.Policy.MoveAfter > 0 && t.released >= s.scenario.Policy.MoveAfter {
				t.moved = true
			}
		}
		heap.Push(&s.agenda, event{at: a.visible, kind: visible, n: n})
	}
}
