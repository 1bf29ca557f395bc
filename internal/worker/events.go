package worker

import (
	"maps"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// carryOut does what was decided at now. The caller holds mu, here and below.
func (w *watch) carryOut(d preempt.Decision, now time.Time) {
	w.departure.Set(d, now)
	w.follow(d, now)
	w.checkpoint(d)
}

// follow makes the worker leave, or come back, as the events call for.
func (w *watch) follow(d preempt.Decision, now time.Time) {
	stands := w.stands(d)
	switch {
	case stands && !w.standing && d.Action == preempt.Drain:
		w.worker.evict(d.Notice(now))
	case stands && !w.standing: // an earlier run, or another worker, left for it
		w.worker.evict(d.Leave(d.Budget).Notice(now))
	case stands && d.Action == preempt.Drain:
		w.worker.hasten(d.Notice(now))
	case !stands && w.standing:
		w.worker.withdraw()
	}
	w.standing = stands
}

// stands reports whether an event calls for this worker to have nothing in hand:
// one to drain for, one that was left for already, or one that was acknowledged,
// which may start at any moment.
func (w *watch) stands(d preempt.Decision) bool {
	if d.Action == preempt.Drain {
		return true
	}
	for _, v := range d.Verdicts {
		if v.Action != preempt.DrainBy {
			continue
		}
		if w.acknowledged[v.Event.ID] == asked || w.left.covers(v.Event) {
			return true
		}
	}
	return false
}

// leave ends the use of a notice that left time: whatever is still in hand is
// drained. It does nothing if the event was withdrawn meanwhile.
func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.decision.Departure()
	if !ok || w.standing {
		return
	}
	w.left.add(v.Event)
	w.standing = true
	w.worker.evict(w.departure.Current().Notice(time.Now()))
}

// impact is what an event may do to this VM. A second impact of an event that
// has started is one more reason to save.
type impact struct {
	id, status string
	notBefore  time.Time
	duration   time.Duration
}

func impactOf(e preempt.Event) impact {
	return impact{id: e.ID, status: e.Status, notBefore: e.NotBefore, duration: e.Duration}
}

// saving is a checkpoint of all jobs because of an event.
type saving struct{ saved bool }

// isSaved reports whether every job was saved because of e as it is now.
func (w *watch) isSaved(e preempt.Event) bool {
	s := w.saves[impactOf(e)]
	return s != nil && s.saved
}

// checkpoint makes every job save at once if an event calls for it that did not
// before. A drain saves everything itself.
func (w *watch) checkpoint(d preempt.Decision) {
	if d.Action == preempt.Drain {
		return
	}
	var fresh []*saving
	for _, v := range d.Verdicts {
		if i := impactOf(v.Event); v.Action == preempt.CheckpointNow && w.saves[i] == nil {
			w.saves[i] = &saving{}
			fresh = append(fresh, w.saves[i])
		}
	}
	if len(fresh) == 0 {
		return
	}
	begun, r := time.Now(), w.worker.running.saveAll()
	w.worker.tasks.Go(func() {
		r.wait()
		w.savedAll(fresh, r, time.Since(begun))
	})
}

// savedAll takes note that every job has answered. Where one could not save, the
// events are not acknowledged: until they start it will be tried again.
func (w *watch) savedAll(fresh []*saving, r *saveRequest, took time.Duration) {
	unsaved := r.unsaved.Load()
	w.worker.Log.Info("all jobs asked to save", "jobs", r.jobs, "not_saved", unsaved, "took", took)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range fresh {
		s.saved = unsaved == 0
	}
	w.madeProgress()
}

// forgetOver drops what was kept about events that are not listed any more.
func (w *watch) forgetOver() {
	listed := func(id string) bool { _, ok := w.document.Event(id); return ok }
	maps.DeleteFunc(w.saves, func(i impact, _ *saving) bool { return !listed(i.id) })
	maps.DeleteFunc(w.acknowledged, func(id string, _ asking) bool { return !listed(id) })
}
