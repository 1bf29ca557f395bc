package histories

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// history runs a plan.
type history struct {
	*plan
	t        *testing.T
	b        *rig.Bed
	recorder *recorder.Recorder
	kinds    job.Kinds

	finalWorkers  []*rig.Process // workers without faults that finish the jobs left
	lastingWorker *rig.Process   // nil if the workers do not differ in kinds
	folder        string         // of the caches of inputs; "" if no job has inputs
	versions      map[string]int // of the inputs, by job that has ended

	mu    sync.Mutex // guards what follows
	began time.Time
	fixed map[string]bool // jobs whose cause of failure an operator has fixed
	told  map[string]bool // jobs that an operator was told are cancelled
	historyStats
}

// run runs the plan, and then workers without faults finish the jobs left.
func (h *history) run() {
	h.startLastingWorker()
	var all sync.WaitGroup
	for _, j := range h.plan.jobs {
		for _, at := range j.putAt {
			all.Go(func() { h.waitUntil(at); h.put(j) })
		}
	}
	for i, text := range h.foreignTexts {
		all.Go(func() { h.waitUntil(time.Duration(i+1) * 7 * time.Second); h.b.PutText(text) })
	}
	for _, o := range h.reopenings {
		all.Go(func() { h.waitUntil(o.at); h.reopen(o.job) })
	}
	for _, a := range h.operatorActions {
		all.Go(func() { h.waitUntil(a.at); h.replayOrPurge(a) })
	}
	for _, c := range h.cancels {
		all.Go(func() { h.waitUntil(c.at); h.cancel(c) })
	}
	for _, p := range h.holds {
		all.Go(func() { h.waitUntil(p.at); h.hold(p) })
	}
	if h.clearedAt > 0 {
		all.Go(func() { h.waitUntil(h.clearedAt); h.clear() })
	}
	for id, in := range h.plan.inputs {
		if in.changesAt > 0 {
			all.Go(func() { h.waitUntil(in.changesAt); h.b.PutData(id, "2") })
		}
	}
	for _, w := range h.plan.runs {
		all.Go(func() { h.waitUntil(w.from); h.runWorker(w) })
	}
	all.Wait()
	h.waitUntil(h.ends)
	h.startFinalWorkers()
	for more := true; more; more = h.finishOperators() {
		time.Sleep(time.Second)
		h.b.WaitFor("no message left", maxCatchUp, func() bool { return h.b.MessagesLeft() == 0 })
	}
	h.recorder.LateRequests.Wait()
	h.virtual = h.since()
}

// begin sets the start time of the history to now.
func (h *history) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

// since returns the time since the start of the history.
func (h *history) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.began)
}

// waitUntil waits until that time of the history.
func (h *history) waitUntil(at time.Duration) { time.Sleep(at - h.since()) }

func (h *history) count(n *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n++
}

func (h *history) put(j *plannedJob) {
	q := h.queueFor(j)
	e := h.envelope(j)
	if j.payload != nil {
		var err error
		if e, err = h.b.Payloads.Offload(h.t.Context(), e); err != nil {
			h.t.Error(err)
			return
		}
	}
	if err := q.Put(h.t.Context(), e, 0); err != nil {
		h.t.Error(err)
	}
}

// envelope returns the message of a job.
func (h *history) envelope(j *plannedJob) queue.Envelope {
	e := queue.Envelope{ID: j.id, Kind: j.kind, EnqueuedAt: time.Now()}
	if j.payload != nil {
		e.Payload = queue.BytesPayload(j.payload)
	}
	h.mix.mark(&e)
	h.setDeadline(&e)
	h.addInputs(&e)
	h.setLimits(&e)
	return e
}

// reopen releases a job from its owner, as an operator does.
func (h *history) reopen(id string) {
	j := h.job(id)
	d := checkpoint.Delivery{ID: id, Kind: j.kind, PayloadHash: h.envelope(j).Work()}
	if was, err := h.b.Records.Reopen(h.t.Context(), d, "operator"); err == nil && was.Status == checkpoint.Running {
		h.count(&h.takeovers)
	}
}

// fix makes a job that always fails succeed from now on.
func (h *history) fix(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fixed[id] = true
}

func (h *history) isFixed(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fixed[id]
}

// runWorker runs one worker from its start to its end.
func (h *history) runWorker(w workerRun) {
	h.count(&h.historyStats.workers)
	p := h.start(w)
	for _, i := range w.incidents {
		h.waitUntil(i.at)
		h.recorder.ExcludeFor(w.vm, i.lasts)
		if i.freeze {
			h.count(&h.freezes)
			thaw := p.Link.Hold()
			time.Sleep(i.lasts)
			thaw()
			continue
		}
		if id, err := h.b.Metadata.SimulateEviction(w.vm); err == nil {
			time.Sleep(i.lasts)
			h.b.Metadata.Withdraw(id)
		}
	}
	h.waitUntil(w.to)
	h.recorder.Exclude(w.vm)
	switch w.end {
	case evicting:
		h.count(&h.notices)
		if _, err := h.b.Metadata.SimulateEviction(w.vm); err != nil {
			h.t.Error(err)
		}
		time.Sleep(w.notice)
		p.Kill()
	case terminated:
		p.Stop()
	case frozenForEver:
		h.count(&h.freezes)
		thaw := p.Link.Hold()
		time.Sleep(w.notice)
		p.KillNoWait()
		thaw()
		<-p.Ended
	case killed, endings:
		h.count(&h.kills)
		p.Kill()
	}
	h.b.Metadata.RemoveVM(w.vm)
}

// start starts a worker whose requests have the faults of the history.
func (h *history) start(w workerRun, change ...func(*worker.Config)) *rig.Process {
	queues := h.takenBy(w)
	var link *rig.Link
	change = append(change, func(c *worker.Config) {
		h.cacheInputs(c, w.vm, link)
		c.Observe = h.recorder.WatchSlots(w.vm, w.concurrency, queues...)
		c.Concurrency, c.MoveAfter, c.Changeover, c.Log = w.concurrency, w.moveAfter, w.changeover, slog.New(slog.DiscardHandler)
		switch {
		case w.regular:
			rig.TakeOnDemand(c)
		case w.onDemand:
			rig.TakeFromBoth(c)
		}
	})
	return h.b.StartWithLink(w.vm, h.kindsOf(w.vm), func(k *rig.Link) {
		link, k.Skew = k, w.skew
		k.FaultFor = func(_ int, r *http.Request) rig.RequestFault {
			return h.faultFor(w.vm, r)
		}
	}, change...)
}

// check checks the outcome of every job.
func (h *history) check() {
	for _, j := range h.plan.jobs {
		if h.isFollowUp(j.id) && !h.wasPut(j) {
			continue
		}
		want := h.want(j)
		h.versions[j.id] = h.versionOf(j)
		h.b.CheckOutcome(h.t, j.id, want)
		h.checkResult(j, want)
		h.countJob(h.b.Record(j.id))
		if j.isFrozen() {
			h.frozen++
		}
		h.checkDeadline(h.b.Record(j.id))
	}
	for _, text := range h.foreignTexts {
		if h.clearedAt == 0 && !h.recorder.KeptAsPoison(text) {
			h.t.Errorf("the message %q is gone, want it in the poison queue", text)
		}
	}
	h.checkKinds()
}

// conclude checks that the recorder found no broken rule, and completes the statistics.
func (h *history) conclude() {
	h.recorder.LateRequests.Wait()
	h.recorder.Check(h.t)
	h.entries, h.worstWait = h.recorder.AllEntries()
	h.stops = h.recorder.Stopped()
	for _, n := range h.b.Server.Counts() {
		h.calls += n
	}
}

// checkResult checks the result of a job that is to be done.
func (h *history) checkResult(j *plannedJob, want checkpoint.Status) {
	if want != checkpoint.Done {
		return
	}
	if got := h.resultOf(j); got != string(j.result(h.versions[j.id])) {
		h.t.Errorf("result of job %s = %q, want %q", j.id, got, j.result(h.versions[j.id]))
	}
}

func (h *history) resultOf(j *plannedJob) string {
	got, err := h.b.Records.Result(h.t.Context(), j.id)
	if err != nil {
		return err.Error()
	}
	return string(got)
}

// countJob adds a job's record to the statistics.
func (h *history) countJob(r checkpoint.Record) {
	h.historyStats.jobs++
	h.interruptions += r.Interruptions
	h.failures += h.recorder.FailuresOf(r.ID)
	switch r.Status {
	case checkpoint.Done:
		h.done++
	case checkpoint.Poison:
		h.poison++
	case checkpoint.Cancelled:
		h.cancelled++
	default: // check has reported it
	}
}

// logHistory logs the whole history, to explain a failure.
func (h *history) logHistory() {
	var s strings.Builder
	for _, w := range h.plan.runs {
		fmt.Fprintf(&s, "%10.3fs to %.3fs: %s, %d at once, %s; notice %s, incidents %v\n", w.from.Seconds(), w.to.Seconds(), w.vm, w.concurrency,
			w.end, w.notice, w.incidents)
	}
	for _, a := range h.operatorActions {
		fmt.Fprintf(&s, "%10.3fs: an operator's action %+v\n", a.at.Seconds(), a)
	}
	for _, c := range h.cancels {
		fmt.Fprintf(&s, "%10.3fs: a cancel %+v\n", c.at.Seconds(), c)
	}
	for _, p := range h.holds {
		fmt.Fprintf(&s, "%10.3fs to %.3fs: a hold %+v\n", p.at.Seconds(), (p.at + p.lasts).Seconds(), p)
	}
	fmt.Fprintf(&s, "queues: %+v; machines: %+v; inputs: %+v; follow-up jobs: %+v; silences: %+v\n", h.shards,
		h.machines, h.inputs, h.followUps, h.silences)
	if h.clearedAt > 0 {
		fmt.Fprintf(&s, "%10.3fs: the queues are cleared\n", h.clearedAt.Seconds())
	}
	s.WriteString(h.deadlinesText())
	for _, f := range h.faults.periods {
		fmt.Fprintf(&s, "%10.3fs to %.3fs: fault %d for %.0f %% of the requests of %q\n", f.from.Seconds(), f.to.Seconds(), f.what,
			f.share*100, f.vm)
	}
	for _, j := range h.plan.jobs {
		fmt.Fprintf(&s, "%+v\n%s", *j, h.recorder.HistoryOf(j.id))
	}
	h.t.Logf("seed %d; repeat it with -run TestHistories -histories 1 -seed %d\n%s", h.seed, h.seed, s.String())
}
