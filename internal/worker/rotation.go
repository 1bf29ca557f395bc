package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

// queueRotation goes round the queues that a worker takes jobs from: each that has jobs
// is asked as often as the others, and one that has none does not hold them up.
// It belongs to one goroutine.
type queueRotation struct {
	jitter retry.Jitter
	queues []*queueState
	next   int // of sources: where the search for one to ask begins
}

// claimResult is what a claim brought.
type claimResult int

const (
	noWork     claimResult = iota // and the queue has no more messages
	moreBehind                    // as many messages as were asked for, none of them work for this worker
	someWork
)

// queueState is one queue, and how its last claims went.
type queueState struct {
	queue       *queue.Queue
	empty       int       // claims in a row that gave no work
	due         time.Time // not to be asked before
	singleUntil time.Time // until then one message is asked for at a time
	inFlight    int       // claims that were sent and have not ended
	backlog     bool      // the last claim brought as many messages as it asked for
}

func newQueueRotation(queues []*queue.Queue, jitter retry.Jitter) *queueRotation {
	t := &queueRotation{jitter: jitter}
	for _, q := range queues {
		t.queues = append(t.queues, &queueState{queue: q})
	}
	return t
}

// turn returns the queue to ask at now, whose turn it then was, or nil if none is
// due.
func (t *queueRotation) turn(now time.Time) *queueState {
	for i := range t.queues {
		at := (t.next + i) % len(t.queues)
		if s := t.queues[at]; s.mayAsk(now) {
			t.next = at + 1
			return s
		}
	}
	return nil
}

// record records a claim from s that ended at now. One that gave no work puts s off
// by [pollDelay] times the number of queues, so that a worker without work asks no
// more often in all than with one queue. Where there may be work behind messages
// of others, s is asked again at once, and the pause after that is no shorter.
func (t *queueRotation) record(s *queueState, gave claimResult, now time.Time) {
	switch gave {
	case someWork:
		s.empty, s.due = 0, time.Time{}
	case moreBehind:
		s.due = time.Time{}
	case noWork:
		s.empty++
		s.due = now.Add(t.jitter.Vary(pollDelay(s.empty)) * time.Duration(len(t.queues)))
	}
}

// observe takes the outcome of a claim that ended at now and hid its messages for
// visibility. Where it failed without a refusal, the service may have handed out
// messages that did not arrive: one that makes the reply unreadable, or too long for
// the connection, takes its neighbours along. Asked for alone it costs only itself.
// It comes round after its visibility, so one at a time lasts for two of them.
func (s *queueState) observe(err error, now time.Time, visibility time.Duration) {
	var refused *azcore.ResponseError
	if err != nil && !errors.As(err, &refused) {
		s.singleUntil = now.Add(2 * visibility)
	}
}

// atMost returns how many messages to ask for at now, where that many are wanted.
func (s *queueState) atMost(wanted int, now time.Time) int {
	if now.Before(s.singleUntil) {
		return min(wanted, 1)
	}
	return wanted
}

// mayAsk reports whether the queue may be asked at now. One that may have no more
// messages is asked by one claim at a time.
func (s *queueState) mayAsk(now time.Time) bool {
	return !now.Before(s.due) && (s.inFlight == 0 || s.backlog)
}

// hasBacklog reports whether a queue has more messages than were claimed.
func (t *queueRotation) hasBacklog() bool {
	return slices.ContainsFunc(t.queues, func(s *queueState) bool { return s.backlog })
}

// due is when the next queue is due that is not at now.
func (t *queueRotation) due(now time.Time) time.Time {
	first := now.Add(longestPoll)
	for _, s := range t.queues {
		if s.due.After(now) && s.due.Before(first) {
			first = s.due
		}
	}
	return first
}

// Bounds of the claim loop.
const (
	// bufferedFor is how long a claimed message may wait for a slot.
	bufferedFor = 10 * time.Second

	longestPoll = 8 * time.Second
)

// pollDelays are the waits before an empty queue is asked again.
var pollDelays = retry.Backoff{First: 250 * time.Millisecond, Max: longestPoll}

// pollDelay returns how long to wait before a queue is asked again, after that many
// claims in a row that gave no work. It has to be varied, so that a fleet does not
// ask in step.
func pollDelay(empty int) time.Duration { return pollDelays.Delay(empty) }
