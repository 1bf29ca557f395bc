package chaos

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// tally is what the doors saw. It is safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	jobs  map[string]*jobFacts
	about map[string]string          // by message: the job's id
	holds map[string]map[string]bool // by VM: the messages in its hands
	stale map[string]bool            // VMs that were frozen or cut off for long
	open  int                        // jobs without an outcome

	calls, unseen             int
	refused, refusedStale     int // writes of records: all, and of stale VMs
	inHandOnce, inHandAtKills int
}

// jobFacts are what is known of one job.
type jobFacts struct {
	put       time.Time
	copies    int // messages that were put
	want      []byte
	writes    []write
	deletions []time.Time // of its messages, by arrival
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
	right                        bool // of a result: it is the one to come to
	arrived                      time.Time
}

func newTally() *tally {
	return &tally{jobs: map[string]*jobFacts{}, about: map[string]string{}, holds: map[string]map[string]bool{}, stale: map[string]bool{}}
}

// expect notes a job that is about to be put.
func (t *tally) expect(id string, p payload, copies int) {
	want := p.result()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs[id] = &jobFacts{put: time.Now(), copies: copies, want: want}
	t.open++
}

// saw notes a call that was answered.
func (t *tally) saw(c call, r *reply) {
	took := r.status >= 200 && r.status < 300
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	switch {
	case c.operation == recordWrite:
		t.sawWrite(c, took, r)
	case !took:
	case c.operation == messageClaim:
		for _, m := range readClaim(r.body) {
			t.handedOut(c.vm, m)
		}
	case c.operation == messageUpdate && c.release, c.operation == messageDelete:
		delete(t.holds[c.vm], c.message)
		if facts := t.jobs[t.about[c.message]]; facts != nil && c.operation == messageDelete {
			facts.deletions = append(facts.deletions, c.arrived)
		}
	}
}

// handedOut notes that a message is in a VM's hands, and in no other's.
func (t *tally) handedOut(vm string, m claimedMessage) {
	for _, held := range t.holds {
		delete(held, m.id)
	}
	if t.holds[vm] == nil {
		t.holds[vm] = map[string]bool{}
	}
	t.about[m.id], t.holds[vm][m.id] = m.job, true
}

// sawWrite notes a write of a record, or its refusal.
func (t *tally) sawWrite(c call, took bool, r *reply) {
	if !took {
		if r.status == http.StatusConflict || r.status == http.StatusPreconditionFailed {
			t.refused++
			if t.stale[c.vm] {
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
		generation: c.number("generation"), number: c.number("write"), step: c.step(), arrived: c.arrived,
	}
	w.right = w.status == statusDone && bytes.Equal(c.body, facts.want)
	facts.writes = append(facts.writes, w)
	if final(w.status) && facts.ended.IsZero() {
		facts.ended = time.Now()
		t.open--
	}
}

// missed notes a call of which nobody knows whether it took effect.
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
	return len(t.holds[vm])
}

// killed notes that a VM is about to be killed, and returns how many jobs it has
// in its hands.
func (t *tally) killed(vm string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.holds[vm]
	delete(t.holds, vm)
	for message := range held {
		if facts := t.jobs[t.about[message]]; facts != nil {
			facts.kills++
		}
	}
	if len(held) > 0 {
		t.inHandOnce++
	}
	t.inHandAtKills += len(held)
	return len(held)
}

// isStale notes that a VM was away for so long that others may have its jobs.
func (t *tally) isStale(vm string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale[vm] = true
}

// waiting returns how many jobs have no outcome.
func (t *tally) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}
