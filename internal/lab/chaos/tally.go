package chaos

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// tally is what the doors saw. It is safe for concurrent use.
type tally struct {
	visibility time.Duration // of the messages that workers claim and renew

	mu    sync.Mutex
	jobs  map[string]*jobFacts
	about map[string]string   // by message: the job's id
	vms   map[string]*vmFacts // by name

	holder map[string]*vmFacts // by message: who has it in hand
	open   int                 // jobs without an outcome

	calls, unseen             int
	refused, refusedStale     int // writes of records: all, and of stale VMs
	inHandOnce, inHandAtKills int
}

// jobFacts are what is known of one job.
type jobFacts struct {
	put       time.Time
	program   bool // its kind is the one that some workers lack
	copies    int  // messages that were put
	want      []byte
	writes    []write
	deletions []time.Time // of its messages, by arrival
	runs      []span      // in which a worker had it in hand and worked on it
	kills     int         // of VMs that had it in hand
	ended     time.Time
}

// write is one write of a record that took effect.
type write struct {
	vm, status, token, messageID string
	state                        string // its hash; empty for none
	before, after                string // ETags; before is empty for a create
	unconditional                bool
	generation, number, step     int
	failures                     int  // in a row, as the record counts them
	right                        bool // of a result: it is the one to come to
	arrived                      time.Time
}

// newTally returns a tally of workers that hide messages for that long.
func newTally(visibility time.Duration) *tally {
	return &tally{
		visibility: visibility, jobs: map[string]*jobFacts{}, about: map[string]string{},
		vms: map[string]*vmFacts{}, holder: map[string]*vmFacts{},
	}
}

// expect records a job that is about to be put.
func (t *tally) expect(id string, p payload, program bool, copies int) {
	want := p.result()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs[id] = &jobFacts{put: time.Now(), program: program, copies: copies, want: want}
	t.open++
}

// saw records a call that storage answered. told is false where the worker does
// not get the reply.
func (t *tally) saw(c call, r *reply, told bool) {
	took, now := r.status >= 200 && r.status < 300, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	v := t.vm(c.vm)
	t.expire(v, now)
	if c.operation == messageClaim {
		v.asked(now)
	}
	switch {
	case c.operation == recordWrite:
		t.sawWrite(c, took, r, now)
	case !took:
	case c.operation == messageClaim:
		for _, m := range readClaim(r.body) {
			t.about[m.id] = m.job
			t.handedOut(v, m.id, told, now)
		}
	case c.operation == messageUpdate && c.hides == t.visibility:
		t.hold(v, c.message, now)
	case c.operation == messageUpdate, c.operation == messageDelete:
		t.letGo(v, c.message, now)
		if facts := t.jobs[t.about[c.message]]; facts != nil && c.operation == messageDelete {
			facts.deletions = append(facts.deletions, c.arrived)
		}
	}
}

// sawWrite records a write of a record, or its refusal.
func (t *tally) sawWrite(c call, took bool, r *reply, now time.Time) {
	v := t.vm(c.vm)
	if !took {
		if r.status == http.StatusConflict || r.status == http.StatusPreconditionFailed {
			t.refused++
			if v.stale {
				t.refusedStale++
			}
		}
		return
	}
	facts := t.jobs[c.job]
	if facts == nil {
		t.unseen++ // a record of no job of ours
		return
	}
	w := write{
		vm: c.vm, status: c.meta("status"), token: c.meta("token"), messageID: c.meta("messageid"), state: c.meta("statehash"),
		before: c.ifMatch, after: r.header.Get("ETag"), unconditional: c.ifMatch == "" && c.ifNoneMatch != "*",
		generation: c.number("generation"), number: c.number("write"), step: c.step(), failures: c.number("failures"), arrived: c.arrived,
	}
	w.right = w.status == statusDone && bytes.Equal(c.body, facts.want)
	facts.writes = append(facts.writes, w)
	if h := v.holds[w.messageID]; h != nil {
		h.worked = true
	}
	if final(w.status) && facts.ended.IsZero() {
		facts.ended = now
		t.open--
	}
}

// missed records a call of which nobody knows whether it took effect.
func (t *tally) missed(c call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.operation != otherCall {
		t.unseen++
	}
}

// inHand returns how many jobs a VM has in its hands.
func (t *tally) inHand(vm string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.vm(vm)
	t.expire(v, time.Now())
	return len(v.holds)
}

// killed records that a VM is about to be killed, and returns how many jobs it has
// in its hands.
func (t *tally) killed(vm string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.vm(vm)
	t.expire(v, time.Now())
	n := len(v.holds)
	for message := range v.holds {
		if facts := t.jobs[t.about[message]]; facts != nil {
			facts.kills++
		}
	}
	t.halt(v, time.Now())
	if n > 0 {
		t.inHandOnce++
	}
	t.inHandAtKills += n
	return n
}

// isStale records that a VM was away for so long that others may have its jobs.
func (t *tally) isStale(vm string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vm(vm).stale = true
}

// waiting returns how many jobs have no outcome.
func (t *tally) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}
