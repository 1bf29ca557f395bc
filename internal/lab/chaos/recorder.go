package chaos

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// recorder records the calls that the proxies see. It is safe for concurrent use.
type recorder struct {
	visibility time.Duration // of the messages that workers claim and renew

	mu      sync.Mutex
	history *oracle.History
	want    map[string][]byte   // results, by job id
	vms     map[string]*vmState // by name
	holder  map[string]*vmState // by message
	open    int                 // jobs without an outcome

	programs, duplicates int    // jobs
	calls, unknown       int    // calls: all, and calls with an unknown effect
	unanswered           string // the last call with an unknown effect, and why
	refused              int    // writes of records
	refusedStale         int    // calls of workers that were away for long
	killsWithJobs        int
	jobsAtKills          int           // that the killed workers held
	hiddenByKills        time.Duration // in all, how long their messages stay hidden
}

// vmState holds the known facts of one VM's worker.
type vmState struct {
	slots int
	died  time.Time        // when it was killed; zero if it was not
	stale bool             // it was frozen or cut off for longer than the visibility
	holds map[string]*hold // by message
	free  oracle.Slots     // when it could have taken a job

	// able says that the VM has no incident and its worker asks for messages.
	// backAt is when the last incident ended; zero during one.
	able   bool
	backAt time.Time
}

// hold is a message that a worker holds.
type hold struct {
	from, until time.Time // until is when it becomes visible unless it is renewed
	worked      bool      // the worker has written the job's record since
}

// newRecorder returns a recorder of workers that hide messages for that long.
func newRecorder(visibility time.Duration) *recorder {
	return &recorder{
		visibility: visibility, history: oracle.NewHistory(), want: map[string][]byte{},
		vms: map[string]*vmState{}, holder: map[string]*vmState{},
	}
}

// expect records a job that is about to be put.
func (r *recorder) expect(id string, p payload, program bool, copies int) {
	want := p.result()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Jobs[id] = &oracle.Job{Put: time.Now(), Healthy: true, Restricted: program}
	r.want[id] = want
	r.open++
	if program {
		r.programs++
	}
	if copies > 1 {
		r.duplicates++
	}
}

// answered records a call that storage answered. delivered is false if the worker
// does not get the reply.
func (r *recorder) answered(c call, reply *reply, delivered bool) {
	ok, now := reply.status >= 200 && reply.status < 300, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	v := r.vm(c.vm)
	r.expire(v, now)
	if c.operation == messageClaim {
		v.asked(now)
	}
	switch {
	case c.operation == recordWrite:
		r.written(c, ok, reply, now)
	case !ok:
	case c.operation == messageClaim:
		for _, m := range readClaim(reply.body) {
			r.history.AddMessage(m.id, m.job)
			r.claimed(v, m.id, delivered, now)
		}
	case c.operation == messageUpdate && c.hides == r.visibility:
		r.track(v, c.message, now)
	case c.operation == messageUpdate:
		r.untrack(v, c.message, now)
	case c.operation == messageDelete:
		r.untrack(v, c.message, now)
		r.history.AddDeletion(c.message, c.arrived)
	}
}

// written records a write of a record, or its refusal.
func (r *recorder) written(c call, ok bool, reply *reply, now time.Time) {
	v := r.vm(c.vm)
	if !ok {
		if reply.status == http.StatusConflict || reply.status == http.StatusPreconditionFailed {
			r.refused++
			if v.stale {
				r.refusedStale++
			}
		}
		return
	}
	job := r.history.Jobs[c.job]
	if job == nil {
		r.unknown++ // a record of a job that was not put
		return
	}
	w := oracle.ReadWrite(c.metadata)
	w.VM, w.Before, w.After, w.Unconditional = c.vm, c.ifMatch, reply.header.Get("ETag"), c.ifMatch == "" && c.ifNoneMatch != "*"
	w.Progress, w.At = c.step(), c.arrived
	w.Wrong = w.Status == oracle.Done && !bytes.Equal(c.body, r.want[c.job])
	if h := v.holds[w.MessageID]; h != nil {
		h.worked = true
	}
	open := job.Ended.IsZero()
	r.history.AddWrite(c.job, w)
	if open && !job.Ended.IsZero() {
		job.Ended = now
		r.open--
	}
}

// missed records a call whose effect is not known, as storage did not answer.
func (r *recorder) missed(c call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.operation != otherCall {
		r.unknown++
		r.unanswered = fmt.Sprintf("the last call without an answer, of %s: %v", c.vm, err)
	}
}

// held returns how many messages a VM's worker holds.
func (r *recorder) held(vm string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vm(vm)
	r.expire(v, time.Now())
	return len(v.holds)
}

// waiting returns how many jobs have no outcome.
func (r *recorder) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// started records a VM that is about to be started.
func (r *recorder) started(name string, slots int, programs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vm(name)
	v.slots, v.free.Restricted, v.backAt = slots, programs, time.Now()
}

// incidentBegins records that a VM has an incident from now on.
func (r *recorder) incidentBegins(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, now := r.vm(name), time.Now()
	r.expire(v, now)
	v.able, v.backAt = false, time.Time{}
	v.update(now)
}

// incidentEnds records that the incident is over.
func (r *recorder) incidentEnds(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vm(name).backAt = time.Now()
}

// frozen records that a VM's worker is suspended, perhaps for longer than it owns
// its jobs.
func (r *recorder) frozen(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(r.vm(name), time.Now())
}

// becameStale records that a VM was away for so long that others may own its jobs.
func (r *recorder) becameStale(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vm(name).stale = true
}

// killed records that a VM is about to be killed, and returns how many messages
// its worker holds.
func (r *recorder) killed(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, now := r.vm(name), time.Now()
	r.expire(v, now)
	n := len(v.holds)
	for message, h := range v.holds {
		r.hiddenByKills += h.until.Sub(now)
		if job := r.history.JobOf(message); job != nil {
			job.Kills++
		}
	}
	r.stop(v, now)
	v.died = now
	if n > 0 {
		r.killsWithJobs++
	}
	r.jobsAtKills += n
	return n
}

// diedAt returns when a VM was killed; zero if it was not.
func (r *recorder) diedAt(name string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.vm(name).died
}

// wrote reports whether a VM's worker has written the record of a job.
func (r *recorder) wrote(vm, job string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.history.Jobs[job]
	return j != nil && slices.ContainsFunc(j.Writes, func(w oracle.Write) bool { return w.VM == vm })
}

// slots returns when each VM's worker could have taken a job. The caller holds mu,
// here and below.
func (r *recorder) slots() map[string]*oracle.Slots {
	slots := map[string]*oracle.Slots{}
	for name, v := range r.vms {
		slots[name] = &v.free
	}
	return slots
}

// vm returns the state of a VM.
func (r *recorder) vm(name string) *vmState {
	v := r.vms[name]
	if v == nil {
		v = &vmState{slots: 1, holds: map[string]*hold{}}
		r.vms[name] = v
	}
	return v
}

// stop records that a worker no longer works on its messages.
func (r *recorder) stop(v *vmState, now time.Time) {
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
func (r *recorder) claimed(v *vmState, message string, delivered bool, now time.Time) {
	if other := r.holder[message]; other != nil && (other != v || !delivered) {
		r.untrack(other, message, now)
	}
	if delivered {
		r.track(v, message, now)
	}
}

// track records that a worker holds a message, claimed or renewed now.
func (r *recorder) track(v *vmState, message string, now time.Time) {
	h := v.holds[message]
	if h == nil {
		h = &hold{from: now}
		v.holds[message], r.holder[message] = h, v
		v.update(now)
	}
	h.until = now.Add(r.visibility)
}

// untrack records that a worker no longer holds a message.
func (r *recorder) untrack(v *vmState, message string, at time.Time) {
	h := v.holds[message]
	if h == nil {
		return
	}
	delete(v.holds, message)
	delete(r.holder, message)
	if job := r.history.JobOf(message); job != nil && h.worked {
		job.Runs = append(job.Runs, oracle.Span{From: h.from, To: at})
	}
	v.update(at)
}

// returnLimit is how long after its start or an incident a worker may take to ask
// for messages: the longest call that the incident may have left it with, and the
// longest pause between two claims. After that it counts as able.
const returnLimit = 20*time.Second + longestPause

// expire untracks messages that were not renewed, and counts a worker as able
// after returnLimit.
func (r *recorder) expire(v *vmState, now time.Time) {
	for message, h := range v.holds {
		if h.until.Before(now) {
			h.worked = true // it may be working without access to storage
			r.untrack(v, message, h.until)
		}
	}
	if late := v.backAt.Add(returnLimit); !v.able && !v.backAt.IsZero() && late.Before(now) {
		v.able = true
		v.update(late)
	}
}
