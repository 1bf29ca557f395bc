package histories

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// lastingVM is the VM of a worker that runs during a whole history, without faults. It
// has only the kind that others lack, so that at any time some worker has it.
const lastingVM = "keeper"

// kindMix says which workers of a history lack a kind, and which ids are chosen by the
// producer and therefore used again.
type kindMix struct {
	kinds          bool            // workers differ in kinds, and the lasting worker has "other"
	lacks          map[string]bool // VMs whose worker lacks the kind "other"
	deferredBefore map[string]bool // jobs whose messages say that they were requeued two hours ago
	chosenIDs      map[string]bool // jobs whose messages say that the producer chose their id
}

// mixKinds draws the mix of kinds. It has a random source of its own, so that the rest
// of the plan does not depend on it.
func (p *plan) mixKinds() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x317d))}
	p.mix = kindMix{kinds: r.oneIn(2), lacks: map[string]bool{"fresh-0": true}, deferredBefore: map[string]bool{},
		chosenIDs: map[string]bool{}}
	for _, j := range p.jobs {
		if r.oneIn(3) {
			p.mix.chosenIDs[j.id] = true
			j.putAt = append(j.putAt, r.between(0, p.ends))
		}
		if p.mix.kinds && j.kind == "chain" && r.oneIn(2) {
			j.kind = "other"
			p.mix.deferredBefore[j.id] = r.oneIn(2)
		}
	}
	for _, l := range p.runs {
		p.mix.lacks[l.vm] = r.oneIn(2)
	}
}

// mark sets the fields of an envelope that the plan asks for.
func (m kindMix) mark(e *queue.Envelope) {
	e.ChosenID = m.chosenIDs[e.ID]
	if m.deferredBefore[e.ID] {
		e.PutBackSince = time.Now().Add(-2 * rig.UnknownKindFor)
	}
}

// startLastingWorker starts that worker, and returns when others can have seen its
// heartbeat.
func (h *history) startLastingWorker() {
	if !h.mix.kinds {
		return
	}
	h.lastingWorker = h.start(workerRun{vm: lastingVM, concurrency: 1, onDemand: true})
	time.Sleep(3 * time.Second)
	h.begin()
}

// kindsOf returns the handlers of one worker process. They report a job that the
// process starts while it is running it.
func (h *history) kindsOf(vm string) job.Kinds {
	kinds := job.Kinds{}
	one := &oneAtATime{vm: vm, recorder: h.recorder, running: map[string]bool{}}
	for kind, handler := range h.kinds {
		if !h.mix.kinds || (vm == lastingVM) == (kind == "other") || vm != lastingVM && !h.mix.lacks[vm] {
			kinds[kind] = one.wrap(handler)
		}
	}
	h.addFrozen(kinds, one)
	return kinds
}

// oneAtATime checks that a worker process runs each job at most once at a time.
type oneAtATime struct {
	vm       string
	recorder *recorder.Recorder

	mu      sync.Mutex
	running map[string]bool
}

func (o *oneAtATime) wrap(handler job.Handler) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		if !o.enter(j.ID) {
			o.recorder.StartedBesideItself(j.ID, o.vm)
		}
		defer o.leave(j.ID)
		o.recorder.HandlerStarted(o.vm, j.ID)
		defer o.recorder.HandlerEnded(o.vm, j.ID)
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

// checkKinds reports jobs that were dead-lettered for a kind that some worker has.
func (h *history) checkKinds() {
	for _, j := range h.plan.jobs {
		if r := h.b.Record(j.id); strings.Contains(r.Reason, "has a handler for kind") {
			h.t.Errorf("job %s is %s: %s; a worker has it\n%s", j.id, r.Status, r.Reason, h.recorder.HistoryOf(j.id))
		}
	}
}

// faultFor returns the fault of a worker's request. The lasting worker has none.
func (h *history) faultFor(vm string, r *http.Request) rig.RequestFault {
	faults := h.faults
	if vm == lastingVM {
		faults = storageFaults{seed: faults.seed}
	}
	f := faults.faultFor(vm, h.recorder.RequestSent(vm, r), h.since())
	h.recorder.SteeredRequest(vm, r, f.IsFault())
	return f
}
