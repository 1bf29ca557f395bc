package chaos

import "time"

// span is a time from one moment to another.
type span struct{ from, to time.Time }

// vmFacts are what is known of one VM's worker: what it has in hand, and when it
// had a slot free.
type vmFacts struct {
	slots    int
	programs bool // it has the kind that some workers lack
	stale    bool // it was frozen or cut off for long

	holds map[string]*hold // by message

	// able says that nothing happens to the VM and that its worker asks for work.
	// idleFrom is since when it is also not full; zero while it is not. backAt is
	// when the last incident was over, zero while one lasts.
	able             bool
	backAt, idleFrom time.Time
	idle             []span // ended ones, in which it could have taken a job
}

// hold is a message in a worker's hands.
type hold struct {
	from, until time.Time // until is when it becomes visible unless it is renewed
	worked      bool      // the worker wrote the job's record meanwhile
}

// returnLimit is how long after an incident, or after its start, a worker may take
// to ask for work before it counts as one that could: the longest call that the
// incident may have left it with, and then the longest pause between two claims.
const returnLimit = 20*time.Second + longestPause

// vm returns what is known of a VM. The caller holds mu, here and below.
func (t *tally) vm(name string) *vmFacts {
	v := t.vms[name]
	if v == nil {
		v = &vmFacts{slots: 1, holds: map[string]*hold{}}
		t.vms[name] = v
	}
	return v
}

// joins records a VM that is started.
func (t *tally) joins(name string, slots int, programs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.vm(name)
	v.slots, v.programs, v.backAt = slots, programs, time.Now()
}

// troubled records that something happens to a VM from now on.
func (t *tally) troubled(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, now := t.vm(name), time.Now()
	t.expire(v, now)
	v.able, v.backAt = false, time.Time{}
	v.look(now)
}

// recovers records that it is over.
func (t *tally) recovers(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vm(name).backAt = time.Now()
}

// stands records that a VM's worker does nothing from now on, which may be for
// ever. What it holds it does not work on.
func (t *tally) stands(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halt(t.vm(name), time.Now())
}

func (t *tally) halt(v *vmFacts, now time.Time) {
	for message, h := range v.holds {
		h.worked = true // or it was about to begin
		t.letGo(v, message, now)
	}
	v.able = false
	v.look(now)
}

// asked records that a worker asks for work.
func (v *vmFacts) asked(now time.Time) {
	if !v.able && !v.backAt.IsZero() {
		v.able = true
		v.look(now)
	}
}

// look begins or ends a span in which the worker could take a job.
func (v *vmFacts) look(now time.Time) {
	could := v.able && len(v.holds) < v.slots
	switch {
	case could && v.idleFrom.IsZero():
		v.idleFrom = now
	case !could && !v.idleFrom.IsZero():
		v.idle = append(v.idle, span{v.idleFrom, now})
		v.idleFrom = time.Time{}
	}
}

// handedOut records that storage gave a message to a VM's worker, and so to no
// other. Where the reply is lost nobody has it.
func (t *tally) handedOut(v *vmFacts, message string, told bool, now time.Time) {
	if other := t.holder[message]; other != nil && (other != v || !told) {
		t.letGo(other, message, now)
	}
	if told {
		t.hold(v, message, now)
	}
}

// hold records that a message is hidden for the worker that has it.
func (t *tally) hold(v *vmFacts, message string, now time.Time) {
	h := v.holds[message]
	if h == nil {
		h = &hold{from: now}
		v.holds[message], t.holder[message] = h, v
		v.look(now)
	}
	h.until = now.Add(t.visibility)
}

// letGo records that a worker does not hold a message any more.
func (t *tally) letGo(v *vmFacts, message string, at time.Time) {
	h := v.holds[message]
	if h == nil {
		return
	}
	delete(v.holds, message)
	delete(t.holder, message)
	if facts := t.jobs[t.about[message]]; facts != nil && h.worked {
		facts.runs = append(facts.runs, span{h.from, at})
	}
	v.look(at)
}

// expire lets go of the messages that were not renewed, and counts a worker that
// asks for no work as one that could after a while.
func (t *tally) expire(v *vmFacts, now time.Time) {
	for message, h := range v.holds {
		if h.until.Before(now) {
			h.worked = true // for all that is known: it may be cut off
			t.letGo(v, message, h.until)
		}
	}
	if late := v.backAt.Add(returnLimit); !v.able && !v.backAt.IsZero() && late.Before(now) {
		v.able = true
		v.look(late)
	}
}
