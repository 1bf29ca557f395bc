package stage

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// Recorder records the calls that the proxies see. It is safe for concurrent use.
type Recorder struct {
	visibility time.Duration // of the messages that workers claim and renew

	mu      sync.Mutex
	facts   Facts
	right   map[string]func(result []byte) bool // whether a result is the expected one, by job id
	vms     map[string]*vmState                 // by name
	holder  map[string]*vmState                 // by message
	open    int                                 // jobs without an outcome
	changed chan struct{}                       // closed and replaced whenever there are more facts
}

// Facts are what happened on a stage.
type Facts struct {
	*oracle.History

	// Slots are when each VM's worker could have taken a job.
	Slots map[string]*oracle.Slots

	Holds    []*Hold
	Refusals []Refusal

	Calls, Unknown int    // calls: all, and calls with an unknown effect
	Unanswered     string // the last call with an unknown effect, and why

	// KillsWithJobs is how many VMs were killed whose workers held messages, JobsAtKills how many
	// messages that were, and HiddenByKills for how long in all they stayed hidden.
	KillsWithJobs, JobsAtKills int
	HiddenByKills              time.Duration
}

// NewFacts returns the facts of a stage on which nothing has happened.
func NewFacts() Facts {
	return Facts{History: oracle.NewHistory(), Slots: map[string]*oracle.Slots{}}
}

// Hold is the time in which a worker holds a message.
type Hold struct {
	VM, Message     string
	From, Until, To time.Time // Until is when the message is visible unless it is renewed; To is zero while it is held

	worked bool // the worker has written the job's record since
}

// Refusal is a write of a job's record that storage refused, because the record had changed.
type Refusal struct {
	VM, Job string
	At      time.Time
	Stale   bool // the VM was away for so long that others may own its jobs
}

// vmState holds the known facts of one VM's worker.
type vmState struct {
	name  string
	slots int
	stale bool             // it was frozen or cut off for longer than the visibility
	holds map[string]*Hold // by message
	free  *oracle.Slots    // when it could have taken a job

	// able says that the VM has no incident and its worker asks for messages.
	// backAt is when the last incident ended; zero during one.
	able   bool
	backAt time.Time
}

// NewRecorder returns a recorder of workers that hide messages for that long.
func NewRecorder(visibility time.Duration) *Recorder {
	return &Recorder{
		visibility: visibility, facts: NewFacts(), right: map[string]func([]byte) bool{},
		vms: map[string]*vmState{}, holder: map[string]*vmState{}, changed: make(chan struct{}),
	}
}

// Do calls change, which adds facts of the caller's own.
func (r *Recorder) Do(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.grown()
}

// Look calls see with the facts so far, which it must not keep. changed is closed when there are more.
func (r *Recorder) Look(see func(*Facts)) (changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	see(&r.facts)
	return r.changed
}

// grown tells that there are more facts. The caller holds mu.
func (r *Recorder) grown() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Expect records a job that is about to be put, and what its result must be.
func (r *Recorder) Expect(id string, j oracle.Job, right func(result []byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.Jobs[id], r.right[id] = &j, right
	r.open++
}

// AddMessage records that a message belongs to a job.
func (r *Recorder) AddMessage(id, job string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.AddMessage(id, job)
}

// answered records a call that storage answered. delivered is false if the worker
// does not get the reply.
func (r *Recorder) answered(c Call, reply *reply, delivered bool) {
	ok, now := reply.status >= 200 && reply.status < 300, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.Calls++
	v := r.vm(c.vm)
	r.expire(v, now)
	if c.Operation == MessageClaim {
		v.asked(now)
	}
	switch {
	case c.Operation == OtherCall:
		return
	case c.Operation == RecordWrite:
		r.written(c, ok, reply, now)
	case !ok:
	case c.Operation == MessagePut:
		for _, m := range readMessages(reply.body) {
			r.facts.AddReplacement(m.id, c.put(), now)
		}
	case c.Operation == MessageClaim:
		for _, m := range readMessages(reply.body) {
			r.facts.AddMessage(m.id, m.job)
			r.claimed(v, m.id, delivered, now)
		}
	case c.Operation == MessageUpdate && c.hides == r.visibility:
		r.track(v, c.message, now)
	case c.Operation == MessageUpdate:
		r.untrack(v, c.message, now)
	case c.Operation == MessageDelete:
		r.untrack(v, c.message, now)
		r.facts.AddDeletion(c.message, c.arrived)
	}
	r.grown()
}

// written records a write of a record, or its refusal.
func (r *Recorder) written(c Call, ok bool, reply *reply, now time.Time) {
	v := r.vm(c.vm)
	if !ok {
		if reply.status == http.StatusConflict || reply.status == http.StatusPreconditionFailed {
			r.facts.Refusals = append(r.facts.Refusals, Refusal{VM: c.vm, Job: c.job, At: now, Stale: v.stale})
		}
		return
	}
	job := r.facts.Jobs[c.job]
	if job == nil {
		r.facts.Unknown++ // a record of a job that was not put
		return
	}
	w := oracle.ReadWrite(c.metadata)
	w.VM, w.Before, w.After, w.Unconditional = c.vm, c.ifMatch, reply.header.Get("ETag"), c.ifMatch == "" && c.ifNoneMatch != "*"
	w.Progress, w.At, w.Took = c.progress(), c.arrived, now.Sub(c.arrived)
	w.Wrong = w.Status == oracle.Done && !r.right[c.job](c.body)
	if h := v.holds[w.MessageID]; h != nil {
		h.worked = true
	}
	open := job.Ended.IsZero()
	r.facts.AddWrite(c.job, w)
	if open && !job.Ended.IsZero() {
		job.Ended = now
		r.open--
	}
}

// missed records a call whose effect is not known, as storage did not answer.
func (r *Recorder) missed(c Call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Operation != OtherCall {
		r.facts.Unknown++
		r.facts.Unanswered = fmt.Sprintf("the last call without an answer, of %s: %v", c.vm, err)
	}
}

// Held returns how many messages a VM's worker holds.
func (r *Recorder) Held(vm string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vm(vm)
	r.expire(v, time.Now())
	return len(v.holds)
}

// Waiting returns how many jobs have no outcome.
func (r *Recorder) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// started records a VM that is about to be started.
func (r *Recorder) started(name string, slots int, restricted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vm(name)
	v.slots, v.free.Restricted, v.backAt = slots, restricted, time.Now()
}

// IncidentBegins records that a VM has an incident from now on.
func (r *Recorder) IncidentBegins(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, now := r.vm(name), time.Now()
	r.expire(v, now)
	v.able, v.backAt = false, time.Time{}
	v.update(now)
}

// IncidentEnds records that the incident is over.
func (r *Recorder) IncidentEnds(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vm(name).backAt = time.Now()
}

// Frozen records that a VM's worker is suspended, perhaps for longer than it owns
// its jobs.
func (r *Recorder) Frozen(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(r.vm(name), time.Now())
}

// BecameStale records that a VM was away for so long that others may own its jobs.
func (r *Recorder) BecameStale(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vm(name).stale = true
}

// Killed records that a VM is about to be killed.
func (r *Recorder) Killed(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, now := r.vm(name), time.Now()
	r.expire(v, now)
	for message, h := range v.holds {
		r.facts.HiddenByKills += h.Until.Sub(now)
		if job := r.facts.JobOf(message); job != nil {
			job.Kills++
		}
	}
	if n := len(v.holds); n > 0 {
		r.facts.KillsWithJobs++
		r.facts.JobsAtKills += n
	}
	r.stop(v, now)
}

// vm returns the state of a VM. The caller holds mu, here and below.
func (r *Recorder) vm(name string) *vmState {
	v := r.vms[name]
	if v == nil {
		v = &vmState{name: name, slots: 1, holds: map[string]*Hold{}, free: &oracle.Slots{}}
		r.vms[name], r.facts.Slots[name] = v, v.free
	}
	return v
}

// stop records that a worker no longer works on its messages.
func (r *Recorder) stop(v *vmState, now time.Time) {
	for message, h := range v.holds {
		h.worked = true // or it was about to
		r.untrack(v, message, now)
	}
	v.able = false
	v.update(now)
}

// asked records that a worker asks for messages.
func (v *vmState) asked(now time.Time) {
	if !v.able && !v.backAt.IsZero() {
		v.able = true
		v.update(now)
	}
}

// update records whether the worker could take a job.
func (v *vmState) update(now time.Time) { v.free.Set(v.able && len(v.holds) < v.slots, now) }

// claimed records that storage returned a message to a VM's worker, so that no
// other holds it any more. If the reply is lost no worker holds it.
func (r *Recorder) claimed(v *vmState, message string, delivered bool, now time.Time) {
	if other := r.holder[message]; other != nil && (other != v || !delivered) {
		r.untrack(other, message, now)
	}
	if delivered {
		r.track(v, message, now)
	}
}

// track records that a worker holds a message, claimed or renewed now.
func (r *Recorder) track(v *vmState, message string, now time.Time) {
	h := v.holds[message]
	if h == nil {
		h = &Hold{VM: v.name, Message: message, From: now}
		r.facts.Holds = append(r.facts.Holds, h)
		v.holds[message], r.holder[message] = h, v
		v.update(now)
	}
	h.Until = now.Add(r.visibility)
}

// untrack records that a worker no longer holds a message.
func (r *Recorder) untrack(v *vmState, message string, at time.Time) {
	h := v.holds[message]
	if h == nil {
		return
	}
	h.To = at
	delete(v.holds, message)
	delete(r.holder, message)
	if job := r.facts.JobOf(message); job != nil && h.worked {
		job.Runs = append(job.Runs, oracle.Span{From: h.From, To: at})
	}
	v.update(at)
}

// LongestPause is the longest pause between two claims of a worker whose queue is empty: 8 s,
// give or take a quarter. It is a promise of the worker.
const LongestPause = 10 * time.Second

// returnLimit is how long after its start or an incident a worker may take to ask
// for messages: the longest call that the incident may have left it with, and the
// longest pause between two claims. After that it counts as able.
const returnLimit = 20*time.Second + LongestPause

// expire untracks messages that were not renewed, and counts a worker as able
// after returnLimit.
func (r *Recorder) expire(v *vmState, now time.Time) {
	for message, h := range v.holds {
		if h.Until.Before(now) {
			h.worked = true // it may be working without access to storage
			r.untrack(v, message, h.Until)
		}
	}
	if late := v.backAt.Add(returnLimit); !v.able && !v.backAt.IsZero() && late.Before(now) {
		v.able = true
		v.update(late)
	}
}
