package web

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/givenup"
	"github.com/spotworker/spotworker/internal/overview/spent"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// idleAfter is for how long the feed reads without a page that is open.
const idleAfter = 20 * time.Second

// mostKinds is how many kinds can be chosen from; the address takes any.
const mostKinds = 200

// patience is how long a page waits for a read when there is an older state.
const patience = 2 * time.Second

// readLimit is how long a read may take.
const readLimit = time.Minute

// state is a deployment at one moment, with the figures that pages derive from it. It does not change.
type state struct {
	overview.Snapshot
	activity overview.Activity
	problems []string
	jobs     []client.Job // all with a record
	kinds    []string     // of the jobs, by name
	costs    *spent.Sums
	givenUp  []givenup.Group
	ends     ends
	growing  map[string]overview.Growth
	number   int // of the read

	// skew is this machine's clock minus the clock of storage.
	skew time.Duration
}

// outage is since when storage cannot be read, and why. It does not change.
type outage struct {
	since time.Time
	why   string
}

// feed reads the deployment while a page is open, once for all pages.
type feed struct {
	read  Reader
	every time.Duration
	wake  chan struct{}

	mu      sync.Mutex
	last    *state // nil before the first read
	outage  *outage
	history history
	next    chan struct{} // closed after the next read
	used    time.Time     // when a page last asked
	tried   time.Time     // when the last read ended, also without success
	open    int           // streams
	rested  bool          // nobody looked since the last read
}

func newFeed(every time.Duration, read Reader) *feed {
	return &feed{read: read, every: every, wake: make(chan struct{}, 1), next: make(chan struct{})}
}

// run reads until ctx ends.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		f.once(ctx)
		for waiting := true; waiting; {
			select {
			case <-tick.C:
				waiting = f.rests()
			case <-f.wake:
				waiting = false
			case <-ctx.Done():
				return
			}
		}
	}
}

// rests reports whether no page is open.
func (f *feed) rests() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rested = f.open == 0 && time.Since(f.used) >= idleAfter
	return f.rested
}

// once reads once and wakes everybody who waits.
func (f *feed) once(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	s := &state{costs: spent.New(true, true)}
	var poisoned []client.PoisonMessage
	kinds := map[string]bool{}
	snapshot, err := f.read(within, func(j client.Job) {
		s.costs.Add(j)
		if j.Status == client.StatusPoison {
			poisoned = append(poisoned, client.PoisonMessage{JobID: j.ID, Kind: j.Kind, Reason: j.Reason, Worker: j.Owner, GivenUpAt: j.EndedAt})
		}
		s.skew = time.Since(j.ReadAt)
		s.ends.add(j)
		if !kinds[j.Kind] && len(kinds) < mostKinds {
			kinds[j.Kind] = true
		}
		j.WorkSHA256, j.Reason, j.Text = "", plaintext.Middle(j.Reason, listed), clip(j.Text, listed) // a page of jobs shows no more
		s.jobs = append(s.jobs, j)
	}, f.early)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish()
	f.tried = time.Now()
	if err != nil {
		since := f.tried
		if f.outage != nil {
			since = f.outage.since
		}
		f.outage = &outage{since, err.Error()}
		return
	}
	f.outage = nil
	s.Snapshot, s.activity, s.problems = snapshot, snapshot.Activity(), snapshot.Problems()
	s.givenUp = givenup.Summarize(poisoned)
	s.growing = snapshot.Sustained()
	s.kinds = slices.Sorted(maps.Keys(kinds))
	if f.last != nil && !f.last.Reading {
		s.number = f.last.number + 1
		if (s.skew - f.last.skew).Abs() < 2*time.Second {
			s.skew = f.last.skew // times that a page shows stay the same
		}
		if !f.rested {
			keepPlaces(f.last.givenUp, s.givenUp)
		}
	}
	f.last, f.rested = s, false
	f.history.add(s)
}

// early takes queues and workers from the first read.
func (f *feed) early(part overview.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = &state{Snapshot: part, activity: part.Activity(), problems: part.Problems(), costs: spent.New(true, true)}
		f.outage = nil
		f.publish()
	}
}

// publish wakes everybody who waits. The caller holds the lock.
func (f *feed) publish() {
	close(f.next)
	f.next = make(chan struct{})
}

// keepPlaces puts groups in the order of an earlier read, so that none moves under the pointer of a reader.
// New groups follow, the most frequent first.
func keepPlaces(before, groups []givenup.Group) {
	places := map[string]int{}
	for i, g := range before {
		places[groupKey(g)] = i - len(before) // a new group has place 0
	}
	slices.SortStableFunc(groups, func(a, b givenup.Group) int { return cmp.Compare(places[groupKey(a)], places[groupKey(b)]) })
}

// view is the content of a page: a state, and since when there is no newer state.
type view struct {
	*state
	outage  *outage
	history []sample
}

// isPart reports whether only queues and workers have been read.
func (v view) isPart() bool { return v.state != nil && v.Reading }

// now returns the view, and a channel that is closed after the next read.
func (f *feed) now() (view, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = time.Now()
	return view{f.last, f.outage, f.history.samples}, f.next
}

// fresh returns a view. It waits for the first read, and a moment for another one if the last
// is old because no page was open. During an outage it does not wait for reads that fail anyway.
func (f *feed) fresh(ctx context.Context) view {
	v := f.begun(ctx)
	for v.isPart() && v.outage == nil && ctx.Err() == nil {
		var next <-chan struct{}
		if v, next = f.now(); v.isPart() && v.outage == nil {
			f.await(ctx, next, readLimit)
		}
	}
	if v.isPart() {
		v.state = nil // the first read has failed
	}
	return v
}

// begun is fresh, but of the first read the queues and workers are enough.
func (f *feed) begun(ctx context.Context) view {
	v, next := f.now()
	switch {
	case v.state == nil && v.outage == nil:
		f.await(ctx, next, readLimit)
	case v.isPart() && v.outage == nil, f.isRecent(v):
		return v
	default:
		f.again()
		f.await(ctx, next, patience)
	}
	v, _ = f.now()
	return v
}

func (f *feed) await(ctx context.Context, next <-chan struct{}, most time.Duration) {
	select {
	case <-next:
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// isRecent reports whether the last read ended a moment ago, with or without success.
func (f *feed) isRecent(v view) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := 2 * f.every
	if v.state != nil {
		old += v.Took
	}
	return time.Since(f.tried) < old
}

// again makes the feed read at once.
func (f *feed) again() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// mostStreams is how many streams stay open. A browser has six connections to a server, for all of
// its windows: with a stream in each of them, the next page would wait for ever.
const mostStreams = 3

// join counts a stream; the caller calls leave at its end. The stream may stay unless there are
// mostStreams others.
func (f *feed) join() (stays bool, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return f.open <= mostStreams, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
	}
}
