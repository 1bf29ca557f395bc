package delivery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// registry holds the active deliveries: the ids of their jobs, their messages, and
// the lock on each id that lets one delivery at a time start the id's handler.
type registry struct {
	mu     sync.Mutex
	ids    map[string]int          // deliveries by job id; a duplicate makes two of one id
	leases map[string]*queue.Lease // by message id
	locks  map[string]*idLock      // by job id; this one has the lock, those after it wait in order

	granted chan struct{} // closed: of the locks that were free
}

func newRegistry() *registry {
	r := &registry{ids: map[string]int{}, leases: map[string]*queue.Lease{}, locks: map[string]*idLock{}, granted: make(chan struct{})}
	close(r.granted)
	return r
}

// addJob adds a delivery of the job. The caller must call removeJob.
func (r *registry) addJob(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id]++
}

func (r *registry) removeJob(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[id]--; r.ids[id] <= 0 {
		delete(r.ids, id)
	}
}

// jobs returns the ids of the jobs in order.
func (r *registry) jobs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.ids))
}

// addLease adds a message.
func (r *registry) addLease(lease *queue.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[lease.ID] = lease
}

// removeLease removes a message. It comes before the message's last call, so that
// a later claim of the message is a delivery of its own.
func (r *registry) removeLease(lease *queue.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leases[lease.ID] == lease {
		delete(r.leases, lease.ID)
	}
}

// adopt reports whether the message of a new claim belongs to an active delivery,
// because its visibility timeout expired while storage could not be reached. The
// delivery continues under the new claim; otherwise its own worker would fence it.
func (r *registry) adopt(later *queue.Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, ok := r.leases[later.ID]
	if ok {
		lease.Adopt(later)
	}
	return ok
}

// lockFor queues up for the lock on a job id. The caller must call unlock.
func (r *registry) lockFor(id string) *idLock {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &idLock{registry: r, id: id}
	last := r.locks[id]
	if last == nil {
		r.locks[id] = l
		return l
	}
	for l.position = 1; last.next != nil; l.position++ {
		last = last.next
	}
	last.next, l.granted = l, make(chan struct{})
	return l
}

// idLock is one delivery's lock on a job id, or its place in the queue for it. The
// holder may start the id's handler.
type idLock struct {
	registry *registry
	id       string
	granted  chan struct{} // closed when this delivery has the lock; nil if it had it at once
	position int           // in the queue, when it was joined
	next     *idLock       // in the queue; guarded by registry.mu
}

// first reports whether the id had no other delivery.
func (l *idLock) first() bool { return l.position == 0 }

// lock waits for the lock and reports whether it was granted in time. Only one
// delivery of an id waits, so that many duplicates do not fill the worker's slots.
func (l *idLock) lock(ctx context.Context, atMost time.Duration) bool {
	if granted := l.first() || isClosed(l.granted); granted || l.position > 1 {
		return granted
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-l.granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// unlock passes the lock to the next delivery. It may be called more than once.
func (l *idLock) unlock() {
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	holder := r.locks[l.id]
	if holder != l {
		for before := holder; before != nil; before = before.next {
			if before.next == l {
				before.next = l.next
			}
		}
		return
	}
	if l.next == nil {
		delete(r.locks, l.id)
		return
	}
	r.locks[l.id] = l.next
	close(l.next.granted)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// runningJobs holds the jobs whose handlers run. It broadcasts to all of them: save
// now, or check again how much time is left. Each job does that in its own loop, so
// that its writes stay sequential. The zero value is empty.
type runningJobs struct {
	mu   sync.Mutex
	jobs map[*runningJob]struct{}
}

// runningJob is one of them.
type runningJob struct {
	set      *runningJobs
	watch    *stopwatch     // of its handler
	woken    chan struct{}  // holds one: there is something to check
	requests []*saveRequest // not answered yet; guarded by set.mu
}

// saveRequest is a request to all running jobs to save what is not recorded yet.
type saveRequest struct {
	answers sync.WaitGroup
	jobs    int          // how many were running
	unsaved atomic.Int64 // how many of them could not save
}

// add adds a job. The caller must call remove.
func (a *runningJobs) add(watch *stopwatch) *runningJob {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &runningJob{set: a, watch: watch, woken: make(chan struct{}, 1)}
	if a.jobs == nil {
		a.jobs = map[*runningJob]struct{}{}
	}
	a.jobs[s] = struct{}{}
	return s
}

// remove removes the job. A save that was requested is then part of how the job ends,
// so it counts as answered.
func (s *runningJob) remove() {
	s.set.mu.Lock()
	delete(s.set.jobs, s)
	s.set.mu.Unlock()
	answer(s.takeRequests(), true)
}

// silence returns the age of the oldest last report and of the oldest checkpoint of all
// jobs, and how many are silent for unusually long.
func (a *runningJobs) silence() (report, checkpoint time.Duration, silent int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.jobs {
		report, checkpoint = max(report, s.watch.silence()), max(checkpoint, s.watch.unsaved())
		if s.watch.isSilent() {
			silent++
		}
	}
	return report, checkpoint, silent
}

// saveAll asks every running job to save. It does not wait: see wait.
func (a *runningJobs) saveAll() *saveRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &saveRequest{jobs: len(a.jobs)}
	r.answers.Add(len(a.jobs))
	for s := range a.jobs {
		s.requests = append(s.requests, r)
		s.wake()
	}
	return r
}

// wakeAll makes every running job check what is asked of it: by a save request, by the
// time left, or by an operator.
func (a *runningJobs) wakeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.jobs {
		s.wake()
	}
}

func (s *runningJob) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// takeRequests returns the requests that are not answered. The caller must answer
// them.
func (s *runningJob) takeRequests() []*saveRequest {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}

// answer answers the requests for one job.
func answer(requests []*saveRequest, saved bool) {
	for _, r := range requests {
		if !saved {
			r.unsaved.Add(1)
		}
		r.answers.Done()
	}
}

// wait returns when every job has answered.
func (r *saveRequest) wait() { r.answers.Wait() }

const (
	// logLimitPeriod is for how long one line stands for all of its kind of job.
	logLimitPeriod = time.Minute

	// logLimitKinds bounds the kinds that have a line of their own: a message may name
	// any kind. Further ones share a line.
	logLimitKinds = 64
)

// logLimit lets one line for each kind of job and minute through. 20,000 messages
// of a kind that no worker has would otherwise log a line each whenever they come
// round.
type logLimit struct {
	mu    sync.Mutex
	lines map[string]*limitedLine
}

// limitedLine is a line that was let through, and how many were not since.
type limitedLine struct {
	at   time.Time
	more int
}

// allow reports whether a line about a kind is due at now, and how many were left
// out since the one before.
func (l *logLimit) allow(kind string, now time.Time) (due bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string]*limitedLine{}
	}
	line := l.lines[kind]
	if line == nil && len(l.lines) >= logLimitKinds {
		l.forget(now)
	}
	if line == nil && len(l.lines) >= logLimitKinds {
		kind = ""
		line = l.lines[kind]
	}
	switch {
	case line == nil:
		l.lines[kind] = &limitedLine{at: now}
		return true, 0
	case now.Sub(line.at) < logLimitPeriod:
		line.more++
		return false, 0
	}
	leftOut = line.more
	*line = limitedLine{at: now}
	return true, leftOut
}

// forget drops the lines whose time is over and that nothing was left out of.
func (l *logLimit) forget(now time.Time) {
	for kind, line := range l.lines {
		if now.Sub(line.at) >= logLimitPeriod && line.more == 0 {
			delete(l.lines, kind)
		}
	}
}
