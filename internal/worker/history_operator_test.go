package worker

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
)

// operator is the name under which an operator's requests reach storage.
const operator = "operator"

// operatorAction is one of an operator at the poison queue, for one job.
type operatorAction struct {
	at        time.Duration
	job       string
	purge     bool // or a replay
	fromStart bool // the replay leaves the state out
	crashCall int  // the call at which the operator's machine dies; 0 for none
	crash     crashPoint
}

// planOperators adds what operators do. It has a source of chance of its own, so that
// the rest of a plan stays what it was.
func (p *plan) planOperators() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0xde5c))}
	for _, j := range p.jobs {
		if !j.alwaysFails && !r.oneIn(8) || r.oneIn(3) {
			continue
		}
		v := operatorAction{job: j.id, purge: r.oneIn(3), fromStart: r.oneIn(3)}
		for range 1 + r.IntN(3) {
			v.at, v.crashCall, v.crash = r.between(15*time.Second, p.ends), 0, crashPoint(1+r.IntN(3))
			if r.oneIn(2) {
				v.crashCall = 1 + r.IntN(12)
			}
			p.operatorActions = append(p.operatorActions, v)
		}
	}
	if r.oneIn(10) {
		p.clearedAt = r.between(10*time.Second, p.ends)
	}
}

// want is the status that a job must end in. A hopeless one succeeds once an
// operator has fixed what was wrong and replays it.
func (p *plan) want(j *plannedJob) checkpoint.Status {
	switch visited := p.actionFor(j.id); {
	case !j.alwaysFails || visited != nil && !visited.purge:
		return checkpoint.Done
	case visited != nil:
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

// operatorTool is an operator's, whose requests are exposed to the weather, and who may
// die at one of them.
func (h *history) operatorTool(v operatorAction) *operate.PoisonQueue {
	k := &link{next: h.b.transport(operator)}
	k.faultFor = func(n int, r *http.Request) requestFault {
		f := h.faults.faultFor(operator, h.ledger.sent(operator, r), h.since())
		if n == v.crashCall {
			f = requestFault{before: f.before, crash: v.crash}
		}
		return f
	}
	s := h.b.connect(k)
	return &operate.PoisonQueue{Poison: s.poison, Queue: s.queue, OnDemand: s.onDemand, Payloads: s.payloads, Records: s.records, Name: operator}
}

// replayOrPurge lets an operator replay or purge a job. One that replays a job that was
// given up has fixed what was wrong before.
func (h *history) replayOrPurge(v operatorAction) {
	if !v.purge && h.ledger.isGivenUp(v.job) {
		h.fix(v.job)
	}
	desk, one := h.operatorTool(v), operate.Selection{Names: []string{v.job}}
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
	// An error is one of the weather's, or a death: somebody does it again.
	if v.purge {
		_ = desk.Purge(h.t.Context(), one, tell)
	} else {
		_ = desk.Replay(h.t.Context(), one, v.fromStart, tell)
	}
}

// finishOperators does in good weather what operators began: visits, and for jobs that lost
// their messages an hour later new ones. It reports whether workers have to do
// something about it.
func (h *history) finishOperators() (more bool) {
	if len(h.operatorActions) > 0 {
		time.Sleep(2*time.Minute + time.Second) // until what a dead operator claimed is visible
	}
	for _, v := range h.operatorActions {
		if h.ledger.isGivenUp(v.job) {
			v.crashCall = 0
			h.replayOrPurge(v)
			more = more || !v.purge
		}
	}
	return h.clearedAt > 0 && h.requeueAll() || more
}

// requeueAll puts new messages for jobs that lost theirs when the queues were
// cleared: by their records, and as their producer would where there is no record,
// or one of a job that was given up but did not reach the poison queue.
func (h *history) requeueAll() (more bool) {
	h.stopFinalWorkers() // an hour of empty claims would take most of a history's time
	time.Sleep(checkpoint.StaleAfter + time.Minute)
	defer h.startFinalWorkers()
	desk := h.operatorTool(operatorAction{})
	survey, err := desk.Orphans(h.t.Context(), checkpoint.StaleAfter)
	if err != nil {
		h.t.Errorf("Orphans = %v, want nil", err)
		return false
	}
	// A job whose message a worker without its kind has hidden gets a second one.
	for _, o := range survey.Orphans {
		switch action, detail, err := desk.Requeue(h.t.Context(), o, desk.Queue); action {
		case operate.Requeued:
			h.count(&h.requeues)
		case operate.Dropped: // the keeper, who is still there, has ended it meanwhile
		default:
			h.t.Errorf("Requeue of job %s = %s %s, %v", o.Record.ID, action, detail, err)
		}
		more = true
	}
	for _, j := range h.plan.jobs {
		status := h.b.record(j.id).Status
		if status == "" || status == checkpoint.Poison && !h.ledger.isGivenUp(j.id) {
			h.put(j)
			more = true
		}
	}
	return more
}

// clear removes all messages of jobs, as an operator does by mistake.
func (h *history) clear() {
	account := h.b.account(h.b.transport("test"))
	for _, name := range []string{h.b.names.Queue, h.b.names.OnDemand} {
		if _, err := account.Queue(name).ClearMessages(h.t.Context(), nil); err != nil {
			h.t.Error(err)
		}
	}
	h.ledger.clear()
}
