package histories

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
)

// operatorAction is an operator's replay or purge of one job in the poison queue.
type operatorAction struct {
	at        time.Duration
	job       string
	purge     bool           // rather than a replay
	fromStart bool           // the replay discards the job's state
	crashCall int            // the call at which the operator's program is killed; 0 for none
	crash     rig.CrashPoint // of that call
}

// planOperators adds the actions of operators. It has a random source of its own, so
// that the rest of the plan does not depend on it.
func (p *plan) planOperators() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xde5c))}
	for _, j := range p.jobs {
		if !j.alwaysFails && !r.oneIn(8) || r.oneIn(3) {
			continue
		}
		a := operatorAction{job: j.id, purge: r.oneIn(3), fromStart: r.oneIn(3)}
		for range 1 + r.IntN(3) {
			a.at, a.crashCall, a.crash = r.between(15*time.Second, p.ends), 0, rig.CrashPoint(1+r.IntN(3))
			if r.oneIn(2) {
				a.crashCall = 1 + r.IntN(12)
			}
			p.operatorActions = append(p.operatorActions, a)
		}
	}
	if r.oneIn(10) {
		p.clearedAt = r.between(10*time.Second, p.ends)
	}
}

// want returns the status in which a job must end. A job that always fails succeeds once
// an operator has fixed its cause and replayed it. A job that an operator was told is
// cancelled stays so. A cancel that failed may have barred the job.
func (h *history) want(j *plannedJob) checkpoint.Status {
	switch action := h.actionFor(j.id); {
	case h.isCancelled(j.id), h.isBarred(j.id):
		return checkpoint.Cancelled
	case !j.alwaysFails || action != nil && !action.purge:
		return checkpoint.Done
	case action != nil:
		return checkpoint.Cancelled
	default:
		return checkpoint.Poison
	}
}

func (p *plan) actionFor(id string) *operatorAction {
	for i := range p.operatorActions {
		if p.operatorActions[i].job == id {
			return &p.operatorActions[i]
		}
	}
	return nil
}

// operatorStores connects an operator's program. Its requests have the faults of the
// history, and it is killed at one of them, unless crashCall is 0.
func (h *history) operatorStores(crashCall int, crash rig.CrashPoint) *deployment.Stores {
	return h.b.Connect(h.operatorLink(crashCall, crash))
}

// operatorLink is the link of an operator's program.
func (h *history) operatorLink(crashCall int, crash rig.CrashPoint) *rig.Link {
	k := &rig.Link{Next: h.b.Transport(recorder.Operator)}
	k.FaultFor = func(n int, r *http.Request) rig.RequestFault {
		f := h.faults.faultFor(recorder.Operator, h.recorder.RequestSent(recorder.Operator, r), h.since())
		if n == crashCall {
			f = rig.RequestFault{Before: f.Before, Crash: crash}
		}
		return f
	}
	return k
}

// operatorTool returns the operator's tool for one action.
func (h *history) operatorTool(a operatorAction) *operate.PoisonQueue {
	s := h.b.Connect(h.operatorLink(a.crashCall, a.crash))
	return &operate.PoisonQueue{Poison: s.Poison, Queue: h.jobsOf(s), OnDemand: s.OnDemand, Queues: s.JobQueues, Payloads: s.Payloads,
		Records: s.Records, Name: recorder.Operator}
}

// replayOrPurge replays or purges a job as an operator does. Before the replay of a
// dead-lettered job the operator has fixed its cause.
func (h *history) replayOrPurge(a operatorAction) {
	if !a.purge && h.recorder.IsDeadLettered(a.job) {
		h.fix(a.job)
	}
	tool, one := h.operatorTool(a), operate.Selection{Names: []string{a.job}}
	tell := func(o operate.Outcome) error {
		switch o.Action {
		case operate.Replayed:
			h.count(&h.replays)
		case operate.Purged:
			h.count(&h.purges)
		default: // nothing was done
		}
		return nil
	}
	// An error is an injected fault or a kill: finishOperators repeats the action.
	if a.purge {
		_ = tool.Purge(h.t.Context(), one, tell)
	} else {
		_ = tool.Replay(h.t.Context(), one, a.fromStart, tell)
	}
}

// finishOperators repeats without faults the actions that did not complete, and
// requeues jobs whose messages were cleared. It reports whether that gave the workers
// anything to do.
func (h *history) finishOperators() (more bool) {
	if len(h.operatorActions) > 0 {
		time.Sleep(2*time.Minute + time.Second) // until the messages claimed by a killed operator are visible
	}
	for _, a := range h.operatorActions {
		if h.recorder.IsDeadLettered(a.job) {
			a.crashCall, a.fromStart = 0, a.fromStart || h.hasChangedInputs(a.job)
			h.replayOrPurge(a)
			more = more || !a.purge
		}
	}
	more = h.startOverWithInputs() || more
	for _, c := range h.cancels {
		h.finishCancel(c.job)
	}
	// A replayed job first ends: while requeueAll waits, no worker may have its kind.
	return more || h.clearedAt > 0 && h.requeueAll()
}

// requeueAll enqueues new messages for jobs that lost theirs when the queues were
// cleared: the operator's tool does so for jobs with a record, and the producer for
// jobs without one, or whose record says dead-lettered while the poison queue does not
// have them.
func (h *history) requeueAll() (more bool) {
	// From now and not from when the workers have stopped: how many heartbeats they write
	// until then, and so how long that takes, depends on scheduling.
	next := h.since() + checkpoint.StaleAfter + time.Minute
	h.stopFinalWorkers() // an hour of empty claims would take most of the test's time
	h.waitUntil(next)
	defer h.startFinalWorkers()
	more = h.requeueOrphans(h.operatorTool(operatorAction{}))
	for _, j := range h.plan.jobs {
		status := h.b.Record(j.id).Status
		if status == "" && h.isFollowUp(j.id) && !h.recorder.WasPut(j.id) {
			continue // its parent never put it
		}
		if status == "" || status == checkpoint.Poison && !h.recorder.IsDeadLettered(j.id) {
			h.put(j)
			more = true
		}
	}
	return more
}

// requeueOrphans enqueues new messages for the jobs that have a record.
func (h *history) requeueOrphans(tool *operate.PoisonQueue) (more bool) {
	survey, err := tool.Orphans(h.t.Context(), checkpoint.StaleAfter)
	if err != nil {
		h.t.Errorf("Orphans = %v, want nil", err)
		return false
	}
	// A job whose message is hidden by a worker without its kind gets a second message.
	for _, o := range survey.Orphans {
		h.kinds["chain"].(*chain).endSilence(o.Record.ID)
		switch action, detail, err := tool.Requeue(h.t.Context(), o, tool.Queue); action {
		case operate.Requeued:
			h.count(&h.requeues)
		case operate.Dropped: // the lasting worker, which still runs, ended the job before
		default:
			h.t.Errorf("Requeue of job %s = %s %s, %v", o.Record.ID, action, detail, err)
		}
		more = true
	}
	return more
}

// clear removes all messages of jobs, as an operator may do by mistake.
func (h *history) clear() {
	account := h.b.Account(h.b.Transport("test"))
	for _, name := range h.b.JobQueues() {
		if _, err := account.Queue(name).ClearMessages(h.t.Context(), nil); err != nil {
			h.t.Error(err)
		}
	}
	h.recorder.QueuesCleared()
}
