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
	now, progress, saved := a.works, recorded, recorded
	var cost checkpoint.Cost
	situation := checkpoint.Situation{Since: instant(claimed), Written: resumed, Unproven: dirty}
	for {
		wait := w.work.Length.Duration - progress // until the job is done
		done := now + wait
		if !w.policy.Never {
			state := max(w.work.state(progress), saved)
			situation.Cost, situation.Losses, situation.Changed = cost.Mean(), w.losses.at(now), w.work.States.Duration == 0 || state > saved
			due, until := w.saves.Next(situation, instant(now))
			if due == checkpoint.DueTouch {
				a.calls++
			}
			if due == checkpoint.DueSave {
				ended := min(now+w.work.Save.Duration, stop)
				if w.work.Beside {
					ended = min(ended, done)
					progress += ended - now
				} else {
					a.saving += ended - now
				}
				if now = ended; now == stop || progress == w.work.Length.Duration {
					break
				}
				saved = state
				if a.saves++; a.saves <= mostMarks {
					a.marks = append(a.marks, now)
				}
				cost.Add(w.work.Save.Duration)
			}
			if due != checkpoint.Nothing {
				situation.Written, situation.WrittenAt = true, instant(now)
				continue
			}
			wait = min(wait, until)
			if !situation.Changed { // the worker learns of the next state at once
				wait = min(wait, w.work.state(progress)+w.work.States.Duration-progress)
			}
		}
		wait = min(wait, stop-now)
		progress, now = progress+wait, now+wait
		if now == stop && now < done || now == done {
			break
		}
	}
	if progress == w.work.Length.Duration {
		return w.settle(a, Done, now, progress-recorded, 0)
	}
	switch {
	case now < leaves:
		return w.settle(a, Cut, now, progress-recorded, 0)
	case now == vm.end:
		return w.settle(a, Died, now, saved-recorded, progress-saved)
	}
	return w.leave(a, vm, now, recorded, saved, progress)
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
