// Package running holds the jobs of a worker whose handlers run, and measures them.
//
// A [Set] broadcasts to all of them: save now, or check again how much time is left. Each
// job does that in its own loop, so that its writes stay sequential. A [Stopwatch] measures
// one run of a handler: how long it has run, and how long it has been silent. Its [Clock]
// leaves out the time for which the worker was frozen. [Exceeded] judges that by the limits
// of the job.
package running

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/job"
)

// Set holds the running jobs. The zero value is empty.
type Set struct {
	clock Clock

	mu    sync.Mutex
	jobs  map[*Job]struct{}
	kinds map[string]*runTimes
}

// runTimes are the run times of the jobs of a kind that this worker has done.
type runTimes struct {
	jobs    int
	longest time.Duration
}

// Job is a running job.
type Job struct {
	set      *Set
	kind     string
	watch    *Stopwatch // of its handler
	show     func() presence.Running
	woken    chan struct{}  // holds one: there is something to check
	requests []*SaveRequest // not answered yet; guarded by set.mu
}

// SaveRequest is a request to all running jobs to save their unrecorded progress.
type SaveRequest struct {
	answers sync.WaitGroup
	jobs    int          // how many were running
	unsaved atomic.Int64 // how many of them could not save
}

// Start starts the stopwatch of a handler. The caller must call its Stop. restored is the
// report that the handler begins with, or nil.
func (s *Set) Start(restored *job.Progress) *Stopwatch { return s.clock.start(restored) }

// Done counts a job of a kind that is done after that time in handlers.
func (s *Set) Done(kind string, ran time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[string]*runTimes{}
	}
	if s.kinds[kind] == nil {
		s.kinds[kind] = &runTimes{}
	}
	s.kinds[kind].jobs++
	s.kinds[kind].longest = max(s.kinds[kind].longest, ran)
}

// patience returns for how long a job of the kind may run without a report until it counts as
// silent, if it has never reported in this run. The caller holds mu.
func (s *Set) patience(kind string) time.Duration {
	if known := s.kinds[kind]; known != nil && known.jobs >= usualFrom {
		return min(max(silentFactor*known.longest, silentSoonest), silentAtFirst)
	}
	return silentAtFirst
}

// Add adds a job of a kind. show says for the worker's heartbeat how far the job is; other goroutines
// may call it, also soon after Remove. The caller must call Remove.
func (s *Set) Add(kind string, watch *Stopwatch, show func() presence.Running) *Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &Job{set: s, kind: kind, watch: watch, show: show, woken: make(chan struct{}, 1)}
	if s.jobs == nil {
		s.jobs = map[*Job]struct{}{}
	}
	s.jobs[j] = struct{}{}
	return j
}

// Remove removes the job. A save that was requested is then part of how the job ends,
// so it counts as answered.
func (j *Job) Remove() {
	j.set.mu.Lock()
	delete(j.set.jobs, j)
	j.set.mu.Unlock()
	Answer(j.TakeRequests(), true)
}

// Show returns how far each job is, in the order of their ids.
func (s *Set) Show() []presence.Running {
	s.mu.Lock()
	jobs := slices.Collect(maps.Keys(s.jobs))
	s.mu.Unlock() // show takes other locks
	shown := make([]presence.Running, len(jobs))
	for i, j := range jobs {
		shown[i] = j.show()
	}
	slices.SortFunc(shown, func(a, b presence.Running) int { return cmp.Compare(a.ID, b.ID) })
	return shown
}

// Silence returns the age of the oldest last report and of the oldest checkpoint of all
// jobs, how many are silent for unusually long, and the longest silent one of them, or nil.
func (s *Set) Silence() (report, checkpoint time.Duration, silent int, longest *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j := range s.jobs {
		report, checkpoint = max(report, j.watch.Silence()), max(checkpoint, j.watch.unsaved())
		if !j.watch.isSilent(s.patience(j.kind)) {
			continue
		}
		silent++
		if longest == nil || j.watch.Silence() > longest.watch.Silence() {
			longest = j
		}
	}
	return report, checkpoint, silent, longest
}

// Show returns how far the job is.
func (j *Job) Show() presence.Running { return j.show() }

// SaveAll asks every running job to save. It does not wait: see Wait.
func (s *Set) SaveAll() *SaveRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &SaveRequest{jobs: len(s.jobs)}
	r.answers.Add(len(s.jobs))
	for j := range s.jobs {
		j.requests = append(j.requests, r)
		j.wake()
	}
	return r
}

// WakeAll makes every running job check for a save request or an operator's request,
// and check the time left.
func (s *Set) WakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j := range s.jobs {
		j.wake()
	}
}

// Woken receives when there is something to check.
func (j *Job) Woken() <-chan struct{} { return j.woken }

func (j *Job) wake() {
	select {
	case j.woken <- struct{}{}:
	default:
	}
}

// TakeRequests returns the requests that are not answered. The caller must answer
// them.
func (j *Job) TakeRequests() []*SaveRequest {
	j.set.mu.Lock()
	defer j.set.mu.Unlock()
	asked := j.requests
	j.requests = nil
	return asked
}

// Answer answers the requests for one job.
func Answer(requests []*SaveRequest, saved bool) {
	for _, r := range requests {
		if !saved {
			r.unsaved.Add(1)
		}
		r.answers.Done()
	}
}

// Wait returns when every job has answered: how many jobs there were, and how many of
// them could not save.
func (r *SaveRequest) Wait() (jobs, unsaved int) {
	r.answers.Wait()
	return r.jobs, int(r.unsaved.Load())
}
