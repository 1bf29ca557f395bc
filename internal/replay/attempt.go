package replay

import (
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/job"
)

// callTime is the time of a storage call.
const callTime = 20 * time.Millisecond

// renewals is the share of the visibility timeout after which a message is renewed
// (package renewal).
const renewals = 3

// End is how a run of a job ended.
type End int

// Ends of runs.
const (
	Cut      End = iota // by the end of the replay
	Done                // the job is done
	Released            // after a notice
	Died                // with its VM
)

// mostMarks is how many saves of an attempt are kept for its picture.
const mostMarks = 120

// attempt is one run of a job on a VM, as a delivery is for a worker.
type attempt struct {
	from, works, to time.Duration // claimed; the handler works; released, done or dead
	end             End
	saves           int
	marks           []time.Duration // when they were complete: the first ones
	saving          time.Duration   // time of the saves, complete or cut off
	kept, redone    time.Duration   // work that is recorded, and work that is not
	visible         time.Duration   // when the message is visible again
	calls           int             // of storage
	lost            time.Duration   // when the VM went, or its notice was seen
}

// worker holds the inputs of the decisions about attempts, the same for all.
type worker struct {
	policy  Policy
	saves   checkpoint.Policy
	work    Work
	losses  observed
	horizon time.Duration
}

// leaves is when a VM's worker takes no more work.
func (p Policy) leaves(vm life) time.Duration {
	if p.Deaf {
		return vm.end
	}
	return vm.seen
}

// instant is a moment of the replay as a time of the worker's code.
func instant(t time.Duration) time.Time { return time.Unix(0, int64(t)) }

// run lets a job with some work recorded run on a VM from a claim until it is done, the
// notice is seen, or the VM is gone. dirty says that the run before ended without a word.
func (w worker) run(claimed time.Duration, recorded time.Duration, resumed, dirty bool, vm life) attempt {
	a := attempt{from: claimed, works: claimed + callTime, visible: -1}
	leaves := w.policy.leaves(vm)
	stop := min(leaves, w.horizon)
	if resumed {
		a.calls = 2 // read the record, acquire it
		a.works += w.work.Restore.Duration
	}
	a.works = min(a.works, stop)
	r := running{now: a.works, progress: recorded, saved: recorded, length: w.work.Length.Duration, stop: stop}
	r.situation = checkpoint.Situation{Since: instant(claimed), Written: resumed, Unproven: dirty}
	for !r.over() {
		wait := r.left()
		if !w.policy.Never {
			due, until := w.due(&r)
			if due != checkpoint.Nothing {
				w.write(&r, &a, due)
				continue
			}
			wait = min(wait, until)
		}
		r.work(min(wait, stop-r.now))
	}
	switch {
	case r.left() == 0:
		return w.settle(a, Done, r.now, r.progress-recorded, 0)
	case r.now < leaves:
		return w.settle(a, Cut, r.now, r.progress-recorded, 0)
	case r.now == vm.end:
		return w.settle(a, Died, r.now, r.saved-recorded, r.progress-r.saved)
	}
	return w.leave(a, vm, r.now, recorded, r.saved, r.progress)
}

// running is an attempt between its start and its end.
type running struct {
	now, progress, saved time.Duration // the time; work that is done, and of it recorded
	length, stop         time.Duration // of the job; when the attempt ends at the latest
	situation            checkpoint.Situation
	cost                 checkpoint.Cost
}

func (r *running) left() time.Duration { return r.length - r.progress }

func (r *running) over() bool { return r.now == r.stop || r.left() == 0 }

func (r *running) work(d time.Duration) { r.now, r.progress = r.now+d, r.progress+d }

// due returns the write that the record needs now, or how long it needs none.
func (w worker) due(r *running) (checkpoint.Due, time.Duration) {
	r.situation.Cost, r.situation.Losses = r.cost.Mean(), w.losses.at(r.now)
	r.situation.Changed = w.work.States.Duration == 0 || w.work.state(r.progress) > r.saved
	due, until := w.saves.Next(r.situation, instant(r.now))
	if !r.situation.Changed { // the worker learns of the next state at once
		until = min(until, w.work.state(r.progress)+w.work.States.Duration-r.progress)
	}
	return due, until
}

// write saves the last state, or touches the record. A save that is cut off records nothing.
func (w worker) write(r *running, a *attempt, due checkpoint.Due) {
	if due == checkpoint.DueTouch {
		a.calls++
	} else {
		state, ended := w.work.state(r.progress), min(r.now+w.work.Save.Duration, r.stop)
		if w.work.Beside {
			r.work(min(ended-r.now, r.left()))
		} else {
			a.saving += ended - r.now
			r.now = ended
		}
		if r.over() {
			return
		}
		r.saved = state
		if a.saves++; a.saves <= mostMarks {
			a.marks = append(a.marks, r.now)
		}
		r.cost.Add(w.work.Save.Duration)
		r.situation.Unproven = false
	}
	r.situation.Written, r.situation.WrittenAt = true, instant(r.now)
}

// leave ends an attempt after a notice that is seen now: the last state is sent if the
// drain's budget and the VM's life allow it, then the message is released.
func (w worker) leave(a attempt, vm life, now, recorded, saved, progress time.Duration) attempt {
	budget := min(max(vm.end-now, preempt.MinBudget), preempt.DrainBudget)
	schedule, _ := drain.New(job.Evicted, nil, instant(now), budget).Schedule()
	states := time.Duration(schedule.States.UnixNano())
	returned, last := now+w.work.Stop.Duration, progress
	handlers := time.Duration(schedule.Handlers.UnixNano())
	if w.work.NoLast || returned > handlers { // a program is killed then
		returned, last = min(returned, handlers), max(w.work.state(progress), saved)
	}
	sent, saves := returned+w.work.Save.Duration, a.saves
	switch {
	case w.policy.Never || last == saved:
		sent = returned
	case sent <= min(states, vm.end):
		saved = last
		a.saves++
	default:
		sent = states
	}
	a.saving += min(sent, vm.end, w.horizon) - now
	if min(sent, vm.end) >= w.horizon {
		a.saves = saves
		a = w.settle(a, Cut, w.horizon, progress-recorded, 0)
		a.lost = now
		return a
	}
	end := Released
	if sent+callTime > vm.end {
		sent, end = vm.end, Died
	}
	a = w.settle(a, end, sent, saved-recorded, progress-saved)
	a.lost = now
	return a
}

// settle completes an attempt that ended at a moment.
func (w worker) settle(a attempt, end End, at, kept, redone time.Duration) attempt {
	a.end, a.to, a.lost, a.kept, a.redone = end, at, at, kept, redone
	every := w.policy.Visibility.Duration / renewals
	renewed := int((at - a.from) / every)
	expires := a.from + time.Duration(renewed)*every + w.policy.Visibility.Duration
	a.calls += a.saves + renewed
	switch end {
	case Done:
		a.calls += 2 // commit, delete
	case Released:
		a.calls++ // the state is among the saves; visibility 0
		a.visible = at + callTime
		if w.policy.Hold {
			a.visible = expires
		}
	case Died:
		a.visible = expires
	case Cut:
	}
	return a
}
