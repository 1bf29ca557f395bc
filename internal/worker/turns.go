package worker

import (
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/queue"
)

// turns goes round the queues that a worker takes jobs from: each that has jobs
// is asked as often as the others, and one that has none does not hold them up.
// It belongs to one goroutine.
type turns struct {
	sources []*source
	next    int // of sources: where the search for one to ask begins
}

// yield is what a claim brought.
type yield int

const (
	noWork      yield = iota // and the queue has no more messages
	maybeBehind              // as many messages as were asked for, none of them work for this worker
	someWork
)

// source is one queue, and how its last claims went.
type source struct {
	*queue.Queue
	empty int       // claims in a row that gave no work
	due   time.Time // not to be asked before
	alone time.Time // until then one message is asked for at a time
}

func newTurns(queues []*queue.Queue) *turns {
	t := &turns{}
	for _, q := range queues {
		t.sources = append(t.sources, &source{Queue: q})
	}
	return t
}

// take returns the queue to ask at now, whose turn it then was, or nil if none is
// due.
func (t *turns) take(now time.Time) *source {
	for i := range t.sources {
		at := (t.next + i) % len(t.sources)
		if s := t.sources[at]; !now.Before(s.due) {
			t.next = at + 1
			return s
		}
	}
	return nil
}

// note records a claim from s that ended at now. One that gave no work puts s off
// by [pollDelay] times the number of queues, so that a worker without work asks no
// more often in all than with one queue. Where there may be work behind messages
// of others, s is asked again at once, and the pause after that is no shorter.
func (t *turns) note(s *source, gave yield, now time.Time) {
	switch gave {
	case someWork:
		s.empty, s.due = 0, time.Time{}
	case maybeBehind:
		s.due = time.Time{}
	case noWork:
		s.empty++
		s.due = now.Add(pollDelay(s.empty) * time.Duration(len(t.sources)))
	}
}

// judge takes the outcome of a claim that ended at now and hid its messages for
// visibility. Where it failed without a refusal, the service may have handed out
// messages that nobody got: one that makes the reply unreadable, or too long for
// the connection, takes its neighbours along. Asked for alone it costs only itself.
// It comes round after its visibility, so one at a time lasts for two of them.
func (s *source) judge(err error, now time.Time, visibility time.Duration) {
	var refused *azcore.ResponseError
	if err != nil && !errors.As(err, &refused) {
		s.alone = now.Add(2 * visibility)
	}
}

// atMost returns how many messages to ask for at now, where that many are wanted.
func (s *source) atMost(wanted int, now time.Time) int {
	if now.Before(s.alone) {
		return min(wanted, 1)
	}
	return wanted
}

// due is when the next queue may be asked.
func (t *turns) due() time.Time {
	first := t.sources[0].due
	for _, s := range t.sources[1:] {
		if s.due.Before(first) {
			first = s.due
		}
	}
	return first
}
