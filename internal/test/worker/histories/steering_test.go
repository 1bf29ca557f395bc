package histories

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
)

// plannedCancel is an operator's cancel of a job.
type plannedCancel struct {
	at        time.Duration
	job       string
	crashCall int            // the call at which the operator's program is killed; 0 for none
	crash     rig.CrashPoint // of that call
}

// plannedHold is an operator's request to workers for a while.
type plannedHold struct {
	at, lasts time.Duration
	pause     bool   // rather than a drain
	vm        string // whose worker is drained; empty for all workers
}

// planSteering adds cancels, pauses and drains. It has a random source of its own, so
// that the rest of the plan does not depend on it.
func (p *plan) planSteering() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x57ee))}
	for _, j := range p.jobs {
		if !r.oneIn(6) {
			continue
		}
		c := plannedCancel{at: r.between(time.Second, p.ends), job: j.id, crash: rig.CrashPoint(1 + r.IntN(3))}
		if r.oneIn(3) {
			c.crashCall = 1 + r.IntN(4)
		}
		p.cancels = append(p.cancels, c)
	}
	if r.oneIn(4) {
		p.holds = append(p.holds, plannedHold{at: r.between(0, p.ends), lasts: r.between(10*time.Second, 90*time.Second), pause: true})
	}
	if r.oneIn(3) {
		w := p.runs[r.IntN(len(p.runs))]
		drain := plannedHold{at: r.between(w.from, w.to), lasts: r.between(10*time.Second, time.Minute), vm: w.vm}
		if r.oneIn(4) {
			drain.vm = ""
		}
		p.holds = append(p.holds, drain)
	}
}

// cancel cancels a job as an operator does. An error is an injected fault or a kill:
// finishCancel repeats it.
func (h *history) cancel(c plannedCancel) {
	h.cancelWith(h.canceller(h.operatorLink(c.crashCall, c.crash), false), c.job)
}

// finishCancel repeats without faults a cancel whose effect no operator was told. A job
// that has ended stays as it is.
func (h *history) finishCancel(id string) {
	if h.isCancelled(id) {
		return
	}
	h.cancelWith(h.canceller(h.operatorLink(0, 0), true), id)
}

// canceller returns the tool of an operator that cancels jobs.
func (h *history) canceller(k *rig.Link, knownOnly bool) *operate.Canceller {
	s := h.b.Connect(k)
	return &operate.Canceller{Records: s.Records, Control: s.Control, Name: recorder.Operator,
		KnownOnly: knownOnly}
}

func (h *history) cancelWith(c *operate.Canceller, id string) {
	_ = c.Cancel(h.t.Context(), slices.Values([]string{id}), func(o operate.CancelOutcome) error {
		if o.Action == operate.Cancelled {
			h.count(&h.cancelsTold)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.told[id] = true
		}
		return nil
	})
}

// isBarred reports whether an operator cancelled a job and barred it.
func (h *history) isBarred(id string) bool {
	r := h.b.Record(id)
	isBar := r.Status == checkpoint.Cancelled && r.Kind == "" && r.PayloadHash == ""
	return isBar && slices.ContainsFunc(h.cancels, func(c plannedCancel) bool { return c.job == id })
}

func (h *history) isCancelled(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[id]
}

// hold asks for a pause or a drain, and later for its end.
func (h *history) hold(p plannedHold) {
	h.count(&h.holdsAsked)
	h.ask(func(d *control.Document, now time.Time) {
		mark := control.Mark{At: now, By: recorder.Operator}
		switch {
		case p.pause:
			d.Pause = &mark
		case p.vm == "":
			d.DrainAll = &mark
		default:
			d.Drains = map[string]control.Mark{recorder.WorkerOnVM(p.vm): mark}
		}
	})
	time.Sleep(p.lasts)
	h.ask(func(d *control.Document, _ time.Time) {
		if p.pause {
			d.Pause = nil
		} else {
			d.DrainAll, d.Drains = nil, nil
		}
	})
}

// ask changes the control document as an operator does, who repeats a command that
// failed.
func (h *history) ask(change func(d *control.Document, now time.Time)) {
	s := h.operatorStores(0, 0)
	for {
		_, err := s.Control.Edit(h.t.Context(), func(d *control.Document, now time.Time) (bool, error) {
			change(d, now)
			return true, nil
		})
		if err == nil {
			return
		}
		time.Sleep(10 * time.Second)
	}
}
