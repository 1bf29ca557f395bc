package events

import (
	"maps"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
)

// carryOut carries out the decision at now. The caller holds mu, here and below.
func (r *Responder) carryOut(d preempt.Decision, now time.Time) {
	r.Departure.Set(d, now)
	r.follow(d, now)
	r.checkpoint(d)
}

// follow makes the worker drain, or take up work again, as the events call for.
func (r *Responder) follow(d preempt.Decision, now time.Time) {
	stands, told := r.stands(d), r.isTold()
	switch {
	case stands && !told && d.Action == preempt.Drain:
		r.Worker.Evict(d.Notice(now))
	case stands && !told: // an earlier run, or another worker, left for it
		r.Worker.Evict(d.Leave(d.Budget).Notice(now))
	case stands && d.Action == preempt.Drain:
		r.Worker.Hasten(d.Notice(now))
	case !stands && told:
		r.Worker.Withdraw()
	}
}

// isTold reports whether the worker was told to drain, and nothing was withdrawn since.
func (r *Responder) isTold() bool { return r.Worker.Position().Facts.Has(lifecycle.EventStands) }

// stands reports whether an event calls for this worker to have no active job: an event
// to drain for, an event that it has left for already, or an acknowledged event that may
// start at any moment.
func (r *Responder) stands(d preempt.Decision) bool {
	if d.Action == preempt.Drain {
		return true
	}
	for _, v := range d.Verdicts {
		if v.Action != preempt.DrainBy {
			continue
		}
		if a := r.acknowledged[v.Event.ID]; a == asked || a == byAnother || r.left.covers(v.Event) {
			return true
		}
	}
	return false
}

// Leave starts the drain for an announced departure before its time, when no job is
// left that could finish. It does nothing if the event was withdrawn in the
// meantime.
func (r *Responder) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.decision.Departure()
	if !ok || r.isTold() {
		return
	}
	r.left.add(v.Event)
	r.Worker.Evict(r.Departure.Current().Notice(time.Now()))
}

// impact is the possible effect of an event on this VM. A second impact of an event that
// has started is one more reason to save.
type impact struct {
	id, status string
	notBefore  time.Time
	duration   time.Duration
}

func impactOf(e preempt.Event) impact {
	return impact{id: e.ID, status: e.Status, notBefore: e.NotBefore, duration: e.Duration}
}

// isSaved reports whether every job was saved because of e as it is now.
func (r *Responder) isSaved(e preempt.Event) bool {
	saved := r.saved[impactOf(e)]
	return saved != nil && *saved
}

// checkpoint makes every job save at once if an event calls for it that did not
// before. A drain saves everything anyway.
func (r *Responder) checkpoint(d preempt.Decision) {
	if d.Action == preempt.Drain {
		return
	}
	var fresh []*bool
	for _, v := range d.Verdicts {
		if i := impactOf(v.Event); v.Action == preempt.CheckpointNow && r.saved[i] == nil {
			r.saved[i] = new(bool)
			fresh = append(fresh, r.saved[i])
		}
	}
	if len(fresh) == 0 {
		return
	}
	begun := time.Now()
	r.Worker.SaveAll(func(jobs, unsaved int) {
		r.Log.Info("running jobs were asked to save", "jobs", jobs, "not_saved", unsaved, "took", time.Since(begun))
		r.recordSaved(fresh, unsaved == 0)
	})
}

// recordSaved records whether every job was saved for the impacts that asked for
// it. If one was not, the events are not acknowledged.
func (r *Responder) recordSaved(asked []*bool, saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range asked {
		*s = saved
	}
	r.Progressed()
}

// forgetUnlisted drops the facts of events that are no longer listed.
func (r *Responder) forgetUnlisted() {
	listed := func(id string) bool { _, ok := r.document.Event(id); return ok }
	maps.DeleteFunc(r.saved, func(i impact, _ *bool) bool { return !listed(i.id) })
	maps.DeleteFunc(r.acknowledged, func(id string, _ acknowledgement) bool { return !listed(id) })
}
