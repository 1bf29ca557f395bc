package worker

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
	"github.com/spotworker/spotworker/job"
)

// history is a plan that happens.
type history struct {
	*plan
	t      *testing.T
	b      *testbed
	ledger *ledger
	kinds  job.Kinds

	fresh []*process // workers that finish what is left, in good weather

	mu    sync.Mutex // guards what follows
	began time.Time
	cured map[string]bool // jobs that an operator fixed before a replay
	chronicle
}

// happen lets the plan happen, and then fresh workers finish in good weather.
func (h *history) happen() {
	h.keep()
	var all sync.WaitGroup
	for _, j := range h.plan.jobs {
		for _, at := range j.putAt {
			all.Go(func() { h.at(at); h.put(j) })
		}
	}
	for i, text := range h.garbage {
		all.Go(func() { h.at(time.Duration(i+1) * 7 * time.Second); h.b.putText(text) })
	}
	for _, o := range h.openings {
		all.Go(func() { h.at(o.at); h.open(o.job) })
	}
	for _, v := range h.visits {
		all.Go(func() { h.at(v.at); h.visit(v) })
	}
	if h.clearedAt > 0 {
		all.Go(func() { h.at(h.clearedAt); h.clear() })
	}
	for _, l := range h.plan.lives {
		all.Go(func() { h.at(l.from); h.live(l) })
	}
	all.Wait()
	h.at(h.ends)
	h.finish()
	for more := true; more; more = h.tidy() {
		time.Sleep(time.Second)
		h.b.waitFor("no message left", patience, func() bool { return h.b.messagesLeft() == 0 })
	}
	h.ledger.stragglers.Wait()
	h.virtual = h.since()
}

// finish starts workers that do what is left.
func (h *history) finish() {
	for i := range 2 {
		l := life{vm: freshVM(len(h.fresh)), concurrency: 2 + i, onDemand: true}
		h.fresh = append(h.fresh, h.start(l, func(c *Config) { c.Metadata = nil }))
	}
}

// dismiss ends the workers that finish started.
func (h *history) dismiss() {
	for i, p := range h.fresh {
		h.ledger.leave(freshVM(i))
		p.stop()
	}
}

func freshVM(i int) string { return fmt.Sprintf("fresh-%d", i) }

// begin makes this moment the beginning of the history.
func (h *history) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

// since returns the time since the beginning.
func (h *history) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.began)
}

// at waits until that time of the history.
func (h *history) at(at time.Duration) { time.Sleep(at - h.since()) }

func (h *history) count(n *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n++
}

func (h *history) put(j *plannedJob) {
	q := h.b.queue
	if j.onDemand {
		q = h.b.onDemand
	}
	e := queue.Envelope{ID: j.id, Kind: j.kind, EnqueuedAt: time.Now()}
	h.mixed.mark(&e)
	if j.payload != nil {
		e.Payload = queue.BytesPayload(j.payload)
		var err error
		if e, err = h.b.payloads.Offload(h.t.Context(), e); err != nil {
			h.t.Error(err)
			return
		}
	}
	if err := q.Put(h.t.Context(), e, 0); err != nil {
		h.t.Error(err)
	}
}

// hangs takes a job over, as an operator would.
func (h *history) open(id string) {
	j := h.job(id)
	d := checkpoint.Delivery{ID: id, Kind: j.kind, PayloadHash: queue.BytesPayload(j.payload).Hash()}
	if was, err := h.b.records.Reopen(h.t.Context(), d, "operator"); err == nil && was.Status == checkpoint.Running {
		h.count(&h.takeovers)
	}
}

// cure makes a hopeless job succeed from now on.
func (h *history) cure(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cured[id] = true
}

func (h *history) isCured(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cured[id]
}

// act is the life of one worker, from its start to its end.
func (h *history) live(l life) {
	h.count(&h.chronicle.lives)
	p := h.start(l)
	for _, i := range l.incidents {
		h.at(i.at)
		h.ledger.disturb(l.vm, i.lasts)
		if i.freeze {
			h.count(&h.freezes)
			thaw := p.link.hold()
			time.Sleep(i.lasts)
			thaw()
			continue
		}
		if id, err := h.b.metadata.SimulateEviction(l.vm); err == nil {
			time.Sleep(i.lasts)
			h.b.metadata.Withdraw(id)
		}
	}
	h.at(l.to)
	h.ledger.leave(l.vm)
	switch l.end {
	case evicting:
		h.count(&h.notices)
		if _, err := h.b.metadata.SimulateEviction(l.vm); err != nil {
			h.t.Error(err)
		}
		time.Sleep(l.notice)
		p.kill()
	case terminated:
		p.stop()
	case frozenForEver:
		h.count(&h.freezes)
		thaw := p.link.hold()
		time.Sleep(l.notice)
		p.killNoWait()
		thaw()
		<-p.ended
	case killed, endings:
		h.count(&h.kills)
		p.kill()
	}
	h.b.metadata.RemoveVM(l.vm)
}

// start starts a worker, whose requests are exposed to the weather.
func (h *history) start(l life, change ...func(*Config)) *process {
	queues := []string{h.b.names.Queue, h.b.names.OnDemand}
	if !l.onDemand {
		queues = queues[:1]
	}
	change = append(change, func(c *Config) {
		c.Observer = h.ledger.slotsOf(l.vm, l.concurrency, queues...)
		c.Concurrency, c.MoveAfter, c.Log = l.concurrency, l.moveAfter, slog.New(slog.DiscardHandler)
		if l.onDemand {
			takeFromBoth(c)
		}
	})
	return h.b.startOn(l.vm, h.kindsOf(l.vm), func(k *link) {
		k.skew = l.skew
		k.faultFor = func(_ int, r *http.Request) requestFault {
			return h.fateOf(l.vm, r)
		}
	}, change...)
}

// check holds what came of the history to the promises.
func (h *history) check() {
	for _, j := range h.plan.jobs {
		want := h.want(j)
		h.b.checkOutcome(h.t, j.id, want)
		if want == checkpoint.Done {
			if got, err := h.b.records.Result(h.t.Context(), j.id); err != nil || string(got) != string(j.result()) {
				h.t.Errorf("result of job %s = %q, %v, want %q", j.id, got, err, j.result())
			}
		}
		h.note(h.b.record(j.id))
	}
	for _, text := range h.garbage {
		if h.clearedAt == 0 && !h.ledger.keptAsPoison(text) {
			h.t.Errorf("the message %q is gone, want it in the poison queue", text)
		}
	}
	h.checkKinds()
	h.ledger.check(h.t)
	h.told, h.worstWait = h.ledger.seen()
	for _, n := range h.b.server.Counts() {
		h.calls += n
	}
}

// note sums up a job's record.
func (h *history) note(r checkpoint.Record) {
	h.chronicle.jobs++
	h.interruptions += r.Interruptions
	h.failures += h.ledger.failuresOf(r.ID)
	switch r.Status {
	case checkpoint.Done:
		h.done++
	case checkpoint.Poison:
		h.poison++
	case checkpoint.Cancelled:
		h.cancelled++
	default: // check has complained
	}
}

// tell prints the history, for those who have to find out what went wrong.
func (h *history) tell() {
	var s strings.Builder
	for _, l := range h.plan.lives {
		fmt.Fprintf(&s, "%10.3fs to %.3fs: %s, %d at once, %s; notice %s, incidents %v\n", l.from.Seconds(), l.to.Seconds(), l.vm, l.concurrency, l.end, l.notice, l.incidents)
	}
	for _, v := range h.visits {
		fmt.Fprintf(&s, "%10.3fs: an operator's visit %+v\n", v.at.Seconds(), v)
	}
	if h.clearedAt > 0 {
		fmt.Fprintf(&s, "%10.3fs: the queues are cleared\n", h.clearedAt.Seconds())
	}
	for _, f := range h.weather.fronts {
		fmt.Fprintf(&s, "%10.3fs to %.3fs: trouble %d for %.0f %% of the requests of %q\n", f.from.Seconds(), f.to.Seconds(), f.what, f.share*100, f.vm)
	}
	for _, j := range h.plan.jobs {
		fmt.Fprintf(&s, "%+v\n%s", *j, h.ledger.storyOf(j.id))
	}
	h.t.Logf("seed %d; repeat it with -run TestHistories -histories 1 -seed %d\n%s", h.seed, h.seed, s.String())
}
