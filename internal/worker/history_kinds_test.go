package worker

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// lastingVM is the VM of a worker that lives through a history in good weather and
// has only the kind that others lack, so that some worker always has it.
const lastingVM = "keeper"

// mixed is what a history has of workers that differ in kinds, and of ids that are
// used again.
type mixed struct {
	kinds  bool            // workers differ in kinds, and a keeper has "other"
	lacks  map[string]bool // VMs whose worker lacks the kind "other"
	waited map[string]bool // jobs whose messages say that they were put back two hours ago
	chosen map[string]bool // jobs whose messages say that their id was chosen
}

// mixKinds draws from a source of its own: what else happens in a history stays.
func (p *plan) mixKinds() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x317d))}
	p.mixed = mixed{kinds: r.oneIn(2), lacks: map[string]bool{"fresh-0": true}, waited: map[string]bool{}, chosen: map[string]bool{}}
	for _, j := range p.jobs {
		if r.oneIn(3) {
			p.mixed.chosen[j.id] = true
			j.putAt = append(j.putAt, r.between(0, p.ends))
		}
		if p.mixed.kinds && j.kind == "chain" && r.oneIn(2) {
			j.kind = "other"
			p.mixed.waited[j.id] = r.oneIn(2)
		}
	}
	for _, l := range p.runs {
		p.mixed.lacks[l.vm] = r.oneIn(2)
	}
}

// mark writes into an envelope what the plan says of its id and its past.
func (m mixed) mark(e *queue.Envelope) {
	e.ChosenID = m.chosen[e.ID]
	if m.waited[e.ID] {
		e.PutBackSince = time.Now().Add(-2 * unknownKindFor)
	}
}

// startLastingWorker starts the keeper, and returns when others can know of it.
func (h *history) startLastingWorker() {
	if !h.mixed.kinds {
		return
	}
	h.start(workerRun{vm: lastingVM, concurrency: 1, onDemand: true})
	time.Sleep(3 * time.Second)
	h.begin()
}

// kindsOf returns the handlers of one worker process. They report it when an id is
// started beside itself.
func (h *history) kindsOf(vm string) job.Kinds {
	kinds := job.Kinds{}
	one := &oneAtATime{vm: vm, ledger: h.ledger, running: map[string]bool{}}
	for kind, handler := range h.kinds {
		if !h.mixed.kinds || (vm == lastingVM) == (kind == "other") || vm != lastingVM && !h.mixed.lacks[vm] {
			kinds[kind] = one.wrap(handler)
		}
	}
	return kinds
}

// oneAtATime holds the handlers of a worker process to one run of an id at a time.
type oneAtATime struct {
	vm     string
	ledger *ledger

	mu      sync.Mutex
	running map[string]bool
}

func (o *oneAtATime) wrap(handler job.Handler) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if !o.enter(j.ID) {
			o.ledger.startedBesideItself(j.ID, o.vm)
		}
		defer o.leave(j.ID)
		return handler.Run(ctx, j)
	})
}

func (o *oneAtATime) enter(id string) (alone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	alone = !o.running[id]
	o.running[id] = true
	return alone
}

func (o *oneAtATime) leave(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.running, id)
}

func (l *ledger) startedBesideItself(id, vm string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaks(l.job(id), "worker %s started the handler while it was running it", vm)
}

// checkKinds reports jobs that were poisoned for a kind that some worker has.
func (h *history) checkKinds() {
	for _, j := range h.plan.jobs {
		if r := h.b.record(j.id); strings.Contains(r.Reason, "has a handler for kind") {
			h.t.Errorf("job %s is %s: %s; a worker has it\n%s", j.id, r.Status, r.Reason, h.ledger.storyOf(j.id))
		}
	}
}

// faultFor is what happens to a request of a worker: nothing, if it is the keeper's.
func (h *history) faultFor(vm string, r *http.Request) requestFault {
	w := h.faults
	if vm == lastingVM {
		w = storageFaults{seed: w.seed}
	}
	return w.faultFor(vm, h.ledger.sent(vm, r), h.since())
}
