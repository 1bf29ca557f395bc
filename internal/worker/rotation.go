package worker

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// queueRotation goes round the queues that a worker takes jobs from: each that has jobs
// is asked as often as the others, and a queue without jobs does not hold them up. The queue
// First is asked before the others. It belongs to one goroutine.
type queueRotation struct {
	jitter retry.Jitter
	fleet  fleetSize
	first  *queue.Queue // nil if there is none
	queues []*queueState
	listed []*queue.Queue // the queues that are asked; the others had been before
	next   int            // of queues: where the search for one to ask begins
	inRow  int            // claims from First since one from another queue

	counted time.Time // when the workers were counted for the pace of each queue
}

// claimResult is the result of a claim.
type claimResult int

const (
	noMessages claimResult = iota
	othersWork             // all the messages that the queue has, none of them work for this worker
	moreBehind             // as many messages as were asked for, none of them work for this worker
	someWork
	failed
	failedAlone // a claim of one message that the service answered: the next may be another
	refused     // because calls come too fast
	absent      // the queue First does not exist, or may not be read: it is done without
)

// queueState is one queue, and how its last claims went.
type queueState struct {
	queue       *queue.Queue
	empty       int       // claims in a row that found no messages
	failures    int       // claims in a row that failed
	fruitless   int       // claims that brought work for others alone, less the claims that did not
	due         time.Time // not to be asked before
	emptyAt     time.Time // when the last claim that found no message was sent
	singleUntil time.Time // until then one message is asked for at a time
	inFlight    int       // claims that were sent and have not ended
	backlog     bool      // the last claim brought as many messages as it asked for
	polling     intake.Polling
	pace        intake.Pace
	thinSince   time.Time // when fewer workers polled than had been counted
	dropped     bool      // no longer asked
	absent      bool      // it is First, and was absent at the last claim
	stuck       bool      // a claim takes so long that other queues are asked before it ends
}

// fleetSize says how many workers take from a queue and how many of them have no job, as of
// a time; 0 if that is not known.
type fleetSize func(queue string) (workers, idle int, asOf time.Time)

func newQueueRotation(queues []*queue.Queue, first *queue.Queue, fleet fleetSize, jitter retry.Jitter) *queueRotation {
	t := &queueRotation{jitter: jitter, fleet: fleet, first: first}
	t.setQueues(queues)
	return t
}

// setQueues sets the queues that are asked from now on. Messages of a queue that is
// no longer asked may still be in the buffer, so that its state stays.
func (t *queueRotation) setQueues(queues []*queue.Queue) {
	if slices.Equal(t.listed, queues) {
		return
	}
	t.listed = queues
	for _, s := range t.queues {
		s.dropped = !slices.Contains(queues, s.queue)
	}
	for _, q := range queues {
		if !slices.ContainsFunc(t.queues, func(s *queueState) bool { return s.queue == q }) {
			t.queues = append(t.queues, &queueState{queue: q, pace: intake.Pace{Jitter: t.jitter}})
		}
	}
}

// setBacklog records whether the last claim from s brought as many messages as it asked
// for. When it does for the first time there are probably more on the other queues,
// since jobs are spread over them: queues that were empty are asked at once. That does not hold
// for First.
func (t *queueRotation) setBacklog(s *queueState, backlog bool) {
	if backlog && !s.backlog && !t.hasBacklog() && !t.isFirst(s) {
		for _, other := range t.queues {
			if !t.isFirst(other) && other.empty > 0 && other.failures == 0 && other.fruitless == 0 {
				other.due = time.Time{}
			}
		}
	}
	s.backlog = backlog
}

// stuckAfter is how long a claim may take until other queues are asked in its place: many
// times the duration of a claim where storage is well. Until it ends its own queue is left
// alone, so that one queue that does not answer leaves room for claims of the others.
const stuckAfter = time.Second

// observeStuck records which queues have a claim in flight that takes too long.
func (t *queueRotation) observeStuck(claims []*claim, now time.Time) {
	for _, s := range t.queues {
		s.stuck = false
	}
	for _, c := range claims {
		c.source.stuck = c.source.stuck || len(t.listed) > 1 && now.Sub(c.begun) >= stuckAfter
	}
}

// stuckAt returns when the next of some claims in flight has taken too long; far ahead
// if none will.
func (t *queueRotation) stuckAt(claims []*claim, now time.Time) time.Time {
	for _, c := range claims { // the oldest first
		if at := c.begun.Add(stuckAfter); at.After(now) && len(t.listed) > 1 {
			return at
		}
	}
	return now.Add(longestPoll)
}

// isFirst reports whether the queue is First.
func (t *queueRotation) isFirst(s *queueState) bool { return t.first != nil && s.queue == t.first }

// turn returns the queue to ask at now, whose turn it then was, or nil if none is
// due.
func (t *queueRotation) turn(now time.Time) *queueState {
	var first, other *queueState
	at := 0
	for i := range t.queues {
		s := t.queues[(t.next+i)%len(t.queues)]
		switch {
		case !s.mayAsk(now):
		case t.isFirst(s):
			first = s
		case other == nil:
			other, at = s, t.next+i
		}
	}
	if first != nil && (other == nil || t.inRow < intake.MostInRow) {
		t.inRow++
		return first
	}
	if other != nil {
		t.next, t.inRow = at%len(t.queues)+1, 0
	}
	return other
}

// shared is how many queues share the polls of a worker: all but First.
func (t *queueRotation) shared() int {
	if slices.Contains(t.listed, t.first) {
		return len(t.listed) - 1
	}
	return len(t.listed)
}

// record records a claim from s that ended at now. An empty queue is polled at an
// interval that depends on the fleet; a queue whose claims fail, or bring work for
// others alone, less and less often, and the more seldom the more queues there are: such
// claims are in vain, however many are made. Where there may be work behind messages of
// others, s is asked again at once, and the pause after that is no shorter.
func (t *queueRotation) record(s *queueState, gave claimResult, now time.Time) {
	if gave == failed || gave == failedAlone || gave == refused {
		s.failures++
	} else {
		s.failures = 0
	}
	switch gave {
	case someWork:
		s.empty, s.fruitless, s.due = 0, 0, time.Time{}
		return
	case moreBehind:
		s.due = time.Time{}
		return
	case refused: // its pace says when
		s.due = time.Time{}
		return
	case absent:
		s.due = now.Add(t.jitter.Vary(absentFor))
		return
	case othersWork:
		s.fruitless = min(s.fruitless+1, maxFruitless)
	case noMessages:
		s.fruitless = max(s.fruitless-1, 0)
	case failed, failedAlone:
	}
	s.empty++
	polling := t.polling(s, now)
	if polling != s.polling {
		s.polling, s.empty = polling, min(s.empty, 2) // so that the fleet's polls are spread again
	}
	failures := s.failures
	if gave == failedAlone {
		failures = min(failures, spoiltDelays)
	}
	backOff := t.jitter.Vary(pollDelay(max(s.fruitless, failures))) * time.Duration(t.shared())
	every := polling.Delay(s.empty, t.jitter)
	if t.isFirst(s) && !t.hasBacklog() {
		every *= firstPolls // nothing can be before what other queues do not have
	}
	s.due = now.Add(max(every, backOff))
}

// polling returns what decides how often s is polled while it is empty. Workers with jobs poll
// First too, as long as other queues have a backlog.
func (t *queueRotation) polling(s *queueState, now time.Time) intake.Polling {
	workers, polls, asOf := t.fleet(s.queue.Name())
	if t.isFirst(s) && t.hasBacklog() {
		polls = workers
	}
	if now.Sub(asOf) > fleetKnownFor || !asOf.After(s.thinSince) {
		polls = 0
	}
	return intake.Polling{Queues: t.shared(), Fleet: polls}
}

// observeWait takes how long a message had been on the queue that a worker without
// work found there. If that is long, other workers polled less often than their number
// promises: they are gone, or have work by now. Until they are counted again, this
// worker polls as if it were alone.
func (s *queueState) observeWait(waited time.Duration, now time.Time) {
	if waited >= longWait {
		s.thinSince = now
	}
}

// observe takes the outcome of a claim that ended at now and hid its messages for
// visibility, and reports whether messages are asked for one at a time from now on. The
// service may have handed out messages that did not arrive: a message that makes the reply
// unreadable, too long for the connection, or an error of the service takes its neighbours
// along. Asked for alone it costs only itself. It comes round after its visibility, so one
// at a time lasts for two of them. A connection that breaks once before a reply begins is
// the network's doing, and a refusal that hides no message concerns all of them: see atMost.
func (s *queueState) observe(err error, now time.Time, visibility time.Duration) (begins bool) {
	if err == nil || isUnanswered(err) && s.failures < 2 || hidesNone(err) {
		return false
	}
	begins = !now.Before(s.singleUntil)
	s.singleUntil = now.Add(2 * visibility)
	return begins
}

// isUnanswered reports whether a claim failed before a reply began.
func isUnanswered(err error) bool {
	_, unanswered := errors.AsType[*url.Error](err)
	return unanswered || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// hidesNone reports whether a claim was refused for a reason that concerns all messages.
func hidesNone(err error) bool {
	fault := outage.Of(err)
	return queue.TooFast(err) || fault == outage.Denied || fault == outage.Missing
}

// singleAfter is how many claims in a row have failed, for any reason, until one
// message is asked for at a time. The first claim that succeeds ends that.
const singleAfter = 3

// atMost returns how many messages to ask for at now, where that many are wanted.
func (s *queueState) atMost(wanted int, now time.Time) int {
	if now.Before(s.singleUntil) || s.failures >= singleAfter {
		return min(wanted, 1)
	}
	return wanted
}

// mayAsk reports whether the queue may be asked at now. A queue that may have no
// more messages is asked by one claim at a time.
func (s *queueState) mayAsk(now time.Time) bool {
	return !s.dropped && !s.stuck && !now.Before(s.dueAt()) && (s.inFlight == 0 || s.backlog)
}

// dueAt returns when the queue may be asked next.
func (s *queueState) dueAt() time.Time {
	if next := s.pace.Due(); next.After(s.due) {
		return next
	}
	return s.due
}

// of returns the state of a queue that messages are taken from.
func (t *queueRotation) of(q *queue.Queue) *queueState {
	i := slices.IndexFunc(t.queues, func(s *queueState) bool { return s.queue == q })
	return t.queues[i]
}

// startDue returns when the first of some buffered messages may be started.
func (t *queueRotation) startDue(buffer []*queue.Lease) time.Time {
	first := time.Now().Add(longestPoll)
	for _, lease := range buffer {
		if s := t.of(lease.Queue()); s.pace.StartDue().Before(first) {
			first = s.pace.StartDue()
		}
	}
	return first
}

// observePressure lets the pace of each queue learn of calls that were refused, and from time
// to time of the size of the fleet.
func (t *queueRotation) observePressure(pressure *intake.Pressure, now time.Time) {
	count := now.Sub(t.counted) >= countEvery
	if count {
		t.counted = now
	}
	for _, s := range t.queues {
		s.pace.Observe(now, pressure.Count(s.queue.Name()))
		if !count {
			continue
		}
		if workers, _, asOf := t.fleet(s.queue.Name()); now.Sub(asOf) <= fleetKnownFor {
			s.pace.SetWorkers(workers)
		}
	}
}

// hasBacklog reports whether a queue has more messages than were claimed.
func (t *queueRotation) hasBacklog() bool {
	return slices.ContainsFunc(t.queues, func(s *queueState) bool { return s.backlog && !s.dropped })
}

// due is when the next queue is due that is not at now.
func (t *queueRotation) due(now time.Time) time.Time {
	first := now.Add(longestPoll)
	for _, s := range t.queues {
		if due := s.dueAt(); !s.dropped && due.After(now) && due.Before(first) {
			first = due
		}
	}
	return first
}

// Bounds of the claim loop.
const (
	// bufferedFor is how long a claimed message may wait for a slot.
	bufferedFor = 10 * time.Second

	// longestPoll is the longest wait before a queue is asked again.
	longestPoll = intake.LongestPoll

	// fleetKnownFor is how old a count of the fleet may be: the time between two, and
	// some more.
	fleetKnownFor = lossesEvery * 4 / 3

	// countEvery is how often the workers in the last sample are counted for the pace.
	countEvery = time.Second / 4

	// longWait is a time on the queue that shows that too few workers poll it. The
	// service tells times in whole seconds, so that it was more than one.
	longWait = 2 * time.Second

	// spoiltDelays is how many delays follow claims of one message that fail: a second at
	// most, as for a queue without messages. A message that makes them fail is hidden then,
	// and those behind it must not wait for long.
	spoiltDelays = 3

	// firstPolls is how many polls of another empty queue there are for one of First, in a
	// worker that sees no backlog: most of these find nothing.
	firstPolls = 2

	// absentFor is how long First is left alone when it does not exist or may not be read.
	absentFor = 5 * time.Minute

	// maxFruitless is how many fruitless claims make a difference: after them the wait
	// is longestPoll.
	maxFruitless = 6
)

// pollDelays are the waits before a queue is asked again that gave an error or others'
// work.
var pollDelays = retry.Backoff{First: 250 * time.Millisecond, Max: longestPoll}

// pollDelay returns how long to wait before a queue is asked again, after that many
// fruitless claims. It has to be varied, so that a fleet does not
// ask in step.
func pollDelay(empty int) time.Duration { return pollDelays.Delay(empty) }
