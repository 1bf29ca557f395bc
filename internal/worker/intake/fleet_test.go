package intake

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// fleetRun simulates workers that take jobs from one queue with a limit, as the claim
// loop does: what storage refuses is counted, and each worker's [Pace] says when to claim
// and to start. The jobs take no time. The same seed gives the same run.
type fleetRun struct {
	random  *rand.Rand
	now     time.Time
	events  events
	limit   limiter
	workers []*simulated

	calls, refused int
	done           int
}

// latency is how long a call takes.
const latency = 10 * time.Millisecond

// limiter is a queue's limit.
type limiter interface {
	// admits reports whether a call for messages is let through.
	admits(now time.Time, messages int) bool
}

// bySecond counts by the second and refuses what comes after the limit, as the emulator
// does. Messages of a claim beyond the limit are carried over.
type bySecond struct {
	limit, used int
	began       time.Time
}

func (l *bySecond) admits(now time.Time, messages int) bool {
	for ; l.used > 0 && now.Sub(l.began) >= time.Second; l.began = l.began.Add(time.Second) {
		l.used = max(0, l.used-l.limit)
	}
	if l.used == 0 {
		l.began = now
	}
	if l.used >= l.limit {
		return false
	}
	l.used += messages
	return true
}

// bucket is a token bucket, with room for a tenth of a second.
type bucket struct {
	limit  int
	tokens float64
	last   time.Time
}

func (l *bucket) admits(now time.Time, messages int) bool {
	l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*float64(l.limit), float64(l.limit)/10)
	l.last = now
	if l.tokens <= 0 {
		return false
	}
	l.tokens -= float64(messages)
	return true
}

// simulated is one worker.
type simulated struct {
	pace     Pace
	pressure Pressure
	free     int // slots
	buffered int // messages that wait for a slot
	asked    int // messages that claims in flight ask for
	done     int // jobs
	wake     time.Time
}

type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (f *fleetRun) after(d time.Duration, do func()) { heap.Push(&f.events, event{f.now.Add(d), do}) }

// trip is one way of a call.
func (f *fleetRun) trip() time.Duration {
	return time.Duration(float64(latency/2) * (0.9 + 0.2*f.random.Float64()))
}

// run lets time pass.
func (f *fleetRun) run(d time.Duration) {
	end := f.now.Add(d)
	for len(f.events) > 0 && f.events[0].at.Before(end) {
		e := heap.Pop(&f.events).(event)
		f.now = e.at
		e.do()
	}
	f.now = end
}

// admit asks the limiter, and counts.
func (f *fleetRun) admit(w *simulated, messages int) bool {
	f.calls++
	if f.limit.admits(f.now, messages) {
		return true
	}
	f.refused++
	w.pressure.Refused("q")
	return false
}

// turn is one turn of a worker's claim loop.
func (f *fleetRun) turn(w *simulated) {
	w.pace.Observe(f.now, w.pressure.Count("q"))
	for w.buffered > 0 && w.free > 0 && !f.now.Before(w.pace.StartDue()) {
		w.pace.Started(f.now)
		w.buffered--
		w.free--
		f.after(f.trip(), func() { f.delete(w, 0) })
	}
	for w.buffered+w.asked <= 64 && !f.now.Before(w.pace.Due()) {
		w.asked += 32
		w.pace.Sent(f.now, 32)
		f.after(f.trip(), func() {
			admitted := f.admit(w, 32)
			f.after(f.trip(), func() {
				w.asked -= 32
				if admitted {
					w.buffered += 32
					w.pace.Got(32, 32)
				} else {
					w.pace.Refused(f.now)
				}
				f.turn(w)
			})
		})
	}
	next := f.now.Add(time.Second)
	if due := w.pace.StartDue(); w.buffered > 0 && w.free > 0 && due.Before(next) {
		next = due
	}
	if due := w.pace.Due(); w.buffered+w.asked <= 64 && due.Before(next) {
		next = due
	}
	if w.wake.After(f.now) && !next.Before(w.wake) {
		return
	}
	w.wake = next
	f.after(next.Sub(f.now), func() {
		if w.wake.Equal(next) {
			w.wake = time.Time{}
			f.turn(w)
		}
	})
}

// delete is the deletion of a message, which the SDK repeats.
func (f *fleetRun) delete(w *simulated, tries int) {
	if !f.admit(w, 1) && tries < 3 {
		wait := float64(200*time.Millisecond) * float64(int(1)<<(tries+1)-1)
		f.after(time.Duration(wait*(0.8+0.5*f.random.Float64())), func() { f.delete(w, tries+1) })
		return
	}
	f.after(f.trip(), func() {
		f.done++
		w.done++
		w.free++
		f.turn(w)
	})
}

// spread returns a random duration in [0, n).
func (f *fleetRun) spread(n time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(n)))
}

// newFleetRun returns a run in which that many workers start within 10 ms, and know of so many.
func newFleetRun(workers, known int, limit limiter, seed uint64) *fleetRun {
	f := &fleetRun{random: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), limit: limit}
	for range workers {
		w := &simulated{free: 64, pace: Pace{Jitter: retry.Jitter{Random: f.spread}}}
		w.pace.SetWorkers(known)
		f.workers = append(f.workers, w)
		f.after(f.spread(10*time.Millisecond), func() { f.turn(w) })
	}
	return f
}

// fairness returns Jain's index of the work that the workers did: 1 if all did the
// same, 1/n if one did everything.
func (f *fleetRun) fairness() float64 {
	var sum, squares float64
	for _, w := range f.workers {
		sum += float64(w.done)
		squares += float64(w.done) * float64(w.done)
	}
	return sum * sum / (squares * float64(len(f.workers)))
}

func (f *fleetRun) reset() {
	f.calls, f.refused, f.done = 0, 0, 0
	for _, w := range f.workers {
		w.done = 0
	}
}

// TestFleetAtTheLimit: workers with a backlog that start together have few calls refused in
// their first 15 s, and settle at a queue's limit of 2,000 messages a second. From then on they use
// it, have fewer calls refused and share it, whether storage counts by the second or as a token
// bucket, which Azure does not state.
func TestFleetAtTheLimit(t *testing.T) {
	const limit, settled, window = 2000, 15 * time.Second, time.Minute
	for _, kind := range []struct {
		name string
		make func() limiter
	}{
		{"by the second", func() limiter { return &bySecond{limit: limit} }},
		{"token bucket", func() limiter { return &bucket{limit: limit} }},
	} {
		for _, workers := range proof.Some(t, 2, []int{1, 2, 4, 8}) {
			for seed := range proof.Times(1, 8) {
				f := newFleetRun(workers, workers, kind.make(), uint64(seed))
				f.run(settled)
				first := float64(f.refused) / float64(f.calls)
				f.reset()
				f.run(window)
				refused := float64(f.refused) / float64(f.calls)
				used := float64(f.done) / (window.Seconds() * limit / 2)
				result := fmt.Sprintf("%s, %d workers: %.2f %% of the first calls refused, then %.2f %%, %.1f %% of the limit used, fairness %.2f",
					kind.name, workers, 100*first, 100*refused, 100*used, f.fairness())
				t.Log(result)
				if first > 0.02 || refused > 0.01 || used < 0.93 || f.fairness() < 0.9 {
					t.Errorf("%s; want at most 2 %% and 1 %%, at least 93 %% and at least 0.9", result)
				}
			}
		}
	}
}

// TestFleetStartsTogether: workers that start together count each other only then, or never where
// they cannot list the heartbeats. Few of their first calls are refused too.
func TestFleetStartsTogether(t *testing.T) {
	for _, counted := range []bool{true, false} {
		for _, workers := range []int{1, 4, 8} {
			f := newFleetRun(workers, 0, &bySecond{limit: 2000}, 1)
			if counted {
				f.after(100*time.Millisecond, func() {
					for _, w := range f.workers {
						w.pace.SetWorkers(workers)
					}
				})
			}
			f.run(15 * time.Second)
			if share := float64(f.refused) / float64(f.calls); share > 0.02 {
				t.Errorf("%d workers, counted %t: %.2f %% of the first calls refused, want at most 2 %%", workers, counted, 100*share)
			}
		}
	}
}
