// Package waiting finds jobs that wait on the queues of jobs while their deadlines near, and
// moves them to the on-demand queue. A release or a claim moves a job; without a free slot of a
// Spot VM there is neither.
//
// A search peeks at the front of each queue twice. A message that is there both times with the
// same dequeue count was claimed by no worker in between. If the job of such a message is at
// risk, the search claims the messages up to it, moves the jobs at risk, and releases the other
// messages. Released messages cost a read and a write more when their jobs start. Workers
// that take from the on-demand queue alone make one more call.
//
// The dequeue counts show claims at once, heartbeats only minutes later. A job at risk is claimed
// before it moves, so that it has one owner and its message can be deleted; its record is read
// even at a first delivery. Claiming without a look would hide all messages from Spot VMs and end
// their first deliveries. Listing the records would find no job that never began, cost more the
// longer records are kept, and leave the old message.
package waiting

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/hedge"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/worker/queuestats"
)

const (
	// minSearch and maxSearch bound the time between two searches of a worker: a quarter
	// of a changeover, so that a job is found while a move still helps.
	minSearch = 15 * time.Second
	maxSearch = 2 * time.Minute

	// searchers is how many workers of a fleet search each time, on average: so many of
	// the workers that take from the on-demand queue, and so many of the others, since
	// Spot VMs may all be gone before the fleet is counted again.
	searchers = 2

	// minUnclaimed is the shortest time for which a message is unclaimed before no worker
	// is expected to claim it.
	minUnclaimed = 10 * time.Second

	// fleetKnownFor is how old the count of the fleet may be: workers list the heartbeats
	// every 15 minutes.
	fleetKnownFor = 20 * time.Minute

	// claimGrace is how long a claim in flight may continue after a stop, so that its
	// messages can be released.
	claimGrace = time.Second

	// deniedPause is how long a queue is left alone that this worker may not read.
	deniedPause = time.Hour
)

// Search says what a search does. It uses the settings of the runner.
type Search struct {
	// TakesSpot says that this worker takes jobs from the queue of jobs, and so reads the
	// number of its shards anyway. TakesOnDemand says that this worker takes jobs from the on-demand queue.
	TakesSpot, TakesOnDemand bool

	// MayClaim reports whether the worker may claim messages.
	MayClaim func() bool

	*delivery.Runner // runs the moves
}

// search is a search while the worker works.
type search struct {
	Search
	cleanup          context.Context // outlives a stop up to the end of the drain
	deliveries       *sync.WaitGroup
	every, unclaimed time.Duration

	mu     sync.Mutex
	denied map[*queue.Queue]time.Time // not to be searched before
}

// Run searches from time to time until ctx ends; cleanup outlives that. Moves are deliveries.
// Without a changeover there is no search.
func Run(ctx, cleanup context.Context, what Search, deliveries *sync.WaitGroup) {
	if what.Changeover <= 0 {
		return
	}
	every := min(max(what.Changeover/4, minSearch), maxSearch)
	s := &search{
		Search: what, cleanup: hedge.NewTries(ctx).In(cleanup), deliveries: deliveries,
		every: every, unclaimed: max(every/4, minUnclaimed), denied: map[*queue.Queue]time.Time{},
	}
	s.run(ctx)
}

// run searches from time to time.
func (s *search) run(ctx context.Context) {
	peers := 0
	for retry.Sleep(ctx, s.Jitter.Vary(s.every)) == nil {
		if fleet, err := s.Fleet.Sample(ctx, fleetKnownFor); err == nil {
			peers = max(fleet.Peers(s.Stores.OnDemand.Name(), s.TakesOnDemand), 1)
		}
		if peers == 0 || !s.MayClaim() || !queuestats.IsChosen(s.Jitter, searchers, peers) {
			continue
		}
		s.searchQueues(ctx)
	}
}

// searchQueues searches the queues of jobs. They do not wait for each other.
func (s *search) searchQueues(ctx context.Context) {
	jobs := []*queue.Queue{s.Stores.Queue}
	if s.Stores.Jobs != nil {
		if !s.TakesSpot {
			_, err := s.Stores.Jobs.Read(outage.Optional(ctx))
			s.check(ctx, s.Stores.Queue, err)
		}
		jobs = slices.Clone(s.Stores.Jobs.All())
	}
	if s.Stores.First != nil {
		jobs = append(jobs, s.Stores.First)
	}
	var queues sync.WaitGroup
	for _, q := range jobs {
		if s.mayRead(q) {
			queues.Go(func() { s.searchQueue(ctx, q) })
		}
	}
	queues.Wait()
}

// searchQueue searches a queue of jobs until none is found at its front.
func (s *search) searchQueue(ctx context.Context, q *queue.Queue) {
	for ctx.Err() == nil {
		before, ok := s.peek(ctx, q, queue.MaxClaim)
		if !ok || !s.MayWait(before) || retry.Sleep(ctx, s.unclaimed) != nil {
			return
		}
		seen, ok := s.peek(ctx, q, queue.MaxClaim)
		if !ok {
			return
		}
		atRisk, err := s.AtRisk(ctx, unclaimed(before, seen))
		if err != nil && ctx.Err() == nil {
			s.Log.Log(ctx, outage.Level(err, slog.LevelDebug), "records of jobs that wait not read", "queue", q.Name(), "error", err)
		}
		if len(atRisk) == 0 {
			return
		}
		if waiting, ok := s.peek(ctx, s.Stores.OnDemand, 1); !ok || len(waiting) > 0 {
			s.Log.InfoContext(ctx, "jobs wait and may miss their deadlines, and are not moved: messages wait on the on-demand queue too",
				"queue", q.Name(), "jobs", len(atRisk))
			return
		}
		if !s.MayClaim() || s.move(ctx, q, seen, atRisk) == 0 {
			return
		}
	}
}

// peek returns the messages at the front of a queue; false if they are not known.
func (s *search) peek(ctx context.Context, q *queue.Queue, n int) ([]queue.Peeked, bool) {
	seen, err := q.Peek(outage.Optional(ctx), n)
	return seen, s.check(ctx, q, err)
}

// unclaimed returns the messages that no worker claimed between two looks at a queue.
func unclaimed(before, now []queue.Peeked) []queue.Peeked {
	return slices.DeleteFunc(slices.Clone(now), func(m queue.Peeked) bool {
		return !slices.ContainsFunc(before, func(b queue.Peeked) bool { return b.ID == m.ID && b.Deliveries == m.Deliveries })
	})
}

// move claims the messages at the front of a queue up to the last message with a job at
// risk, moves these jobs, and releases the other messages. It returns how many messages it
// claimed of jobs at risk, when they are done.
func (s *search) move(ctx context.Context, q *queue.Queue, seen, atRisk []queue.Peeked) (claimed int) {
	last := atRisk[len(atRisk)-1].ID
	wanted := 1 + slices.IndexFunc(seen, func(m queue.Peeked) bool { return m.ID == last })
	visibility, _ := s.ClaimVisibility()
	grace, cancel := drain.Outlive(ctx, drain.UntilAfter(claimGrace))
	leases, err := q.ClaimOnce(outage.Optional(grace), wanted, visibility)
	cancel()
	s.check(ctx, q, err)
	var moves []*delivery.Delivery
	var others []*queue.Lease
	for _, lease := range leases {
		same := func(m queue.Peeked) bool { return m.ID == lease.ID && m.Deliveries == lease.Deliveries-1 }
		switch {
		case s.Adopt(lease):
		case ctx.Err() == nil && slices.ContainsFunc(atRisk, same):
			moves = append(moves, s.OpenWaiting(lease))
		default:
			others = append(others, lease)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { s.ReleaseUnstarted(s.cleanup, others) })
	if len(moves) > 0 {
		s.Log.InfoContext(ctx, "jobs wait and may miss their deadlines, and no worker claims them: moving them to the on-demand queue",
			"queue", q.Name(), "jobs", len(moves))
	}
	for _, d := range moves {
		all.Add(1)
		s.deliveries.Go(func() {
			defer all.Done()
			d.Run(ctx, s.cleanup)
		})
	}
	all.Wait()
	return len(moves)
}

// check reports whether a call succeeded, and logs why it did not. A queue that this worker
// may not read is left alone for a while.
func (s *search) check(ctx context.Context, q *queue.Queue, err error) bool {
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil:
	case queue.Denied(err):
		s.mu.Lock()
		defer s.mu.Unlock()
		if time.Now().Before(s.denied[q]) {
			return false
		}
		s.denied[q] = time.Now().Add(deniedPause)
		s.Log.WarnContext(ctx, "queue not searched for jobs that wait and may miss their deadlines: the role Storage Queue Data Contributor "+
			"on it is missing",
			"queue", q.Name(), "retry_in", deniedPause, "error", err)
	default:
		s.Log.Log(ctx, outage.Level(err, slog.LevelDebug), "queue not searched for jobs that wait and may miss their deadlines", "queue",
			q.Name(), "error", err)
	}
	return false
}

// mayRead reports whether this worker may read a queue, as far as it knows.
func (s *search) mayRead(q *queue.Queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.denied[q])
}
