package runtimedir

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

const (
	// requestsMost and requestsWindow are the budget of all workers together:
	// what the service answers, in a little more than the second it counts. The
	// rest is for the way to it, which is not of the same length for all.
	requestsMost   = 5
	requestsWindow = 1150 * time.Millisecond

	// lateness is how much later than its slot a request may be sent. One that
	// comes later, as of a process that was frozen, takes another slot instead.
	lateness = 25 * time.Millisecond

	// farAhead is more than any slot lies in the future: all polls of all workers
	// that wait at once take no longer.
	farAhead = time.Minute

	// requestsPatience is how long the file is waited for.
	requestsPatience = 250 * time.Millisecond

	// ownMost is what a worker sends in ownWindow while the file cannot be used:
	// its share.
	ownMost, ownWindow = 1, time.Second

	maxFile = 64 << 10

	requestsFile = "requests.json"
)

// budget is what the workers of this VM may send to the metadata service,
// together.
type budget struct {
	dir    *Dir
	own    preempt.Budget
	broken atomic.Bool
}

func newBudget(d *Dir) *budget {
	return &budget{dir: d, own: preempt.NewBudget(ownMost, ownWindow)}
}

// Budget is the one that all workers of this VM share: five requests a second.
// It never fails: without the file, each worker keeps to one request a second.
func (d *Dir) Budget() preempt.Budget { return d.budget }

// Wait implements [preempt.Budget].
func (b *budget) Wait(ctx context.Context, u preempt.Urgency) error {
	var unused time.Duration
	for {
		at, ok, err := b.take(ctx, u, unused)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.note(err)
		if err != nil {
			return b.own.Wait(ctx, u)
		}
		if err := b.sleepUntil(ctx, at); err != nil {
			return err
		}
		switch late := b.dir.Clock()-at > lateness; {
		case ok && !late:
			return nil
		case ok:
			unused = at
		}
	}
}

// take finds the next slot, as [preempt.SlidingWindow.Reserve] does, and gives back the one
// that was not used, unless that is zero.
func (b *budget) take(ctx context.Context, u preempt.Urgency, unused time.Duration) (at time.Duration, ok bool, err error) {
	l, err := takeWithin(ctx, b.dir.file(requestsFile), requestsPatience)
	if err != nil {
		return 0, false, err
	}
	defer l.release()
	content, err := l.read()
	if err != nil {
		return 0, false, err
	}
	now := b.dir.Clock()
	slots := b.parse(content, now)
	slots.Release(unused)
	at, ok = slots.Reserve(now, u)
	if ok {
		l.write(b.format(slots))
	}
	return at, ok, nil
}

// requests is what the file holds: the times of the latest requests since boot,
// in nanoseconds, oldest first.
type requests struct {
	Boot string          `json:"boot"`
	Sent []time.Duration `json:"sent"`
}

// parse returns the slots as they are at now. A file that is new, or from another
// start of the machine, has none taken; of one that is damaged all are.
func (b *budget) parse(content []byte, now time.Duration) preempt.SlidingWindow {
	slots := preempt.SlidingWindow{Limit: requestsMost, Window: requestsWindow}
	if len(content) == 0 {
		return slots
	}
	var r requests
	if err := json.Unmarshal(content, &r); err != nil || r.isImpossible(now) {
		slots.Fill(now)
		return slots
	}
	if r.Boot == b.dir.Boot {
		slots.Sent = r.Sent
	}
	return slots
}

func (r requests) isImpossible(now time.Duration) bool {
	if len(r.Sent) > requestsMost {
		return true
	}
	for i, at := range r.Sent {
		if at < 0 || at > now+farAhead || i > 0 && at < r.Sent[i-1] {
			return true
		}
	}
	return false
}

func (b *budget) format(s preempt.SlidingWindow) []byte {
	content, err := json.Marshal(requests{Boot: b.dir.Boot, Sent: s.Sent})
	if err != nil {
		panic("runtimedir: numbers do not encode: " + err.Error()) // they always do
	}
	return content
}

// note says once when the file cannot be used, and when it can again.
func (b *budget) note(err error) {
	if b.broken.Swap(err != nil) == (err != nil) {
		return
	}
	if err != nil {
		b.dir.Log.Warn("runtime folder cannot be used; this worker asks the metadata service once a second only", "error", err)
		return
	}
	b.dir.Log.Info("runtime folder can be used again")
}

// sleepUntil waits until at by the folder's clock.
func (b *budget) sleepUntil(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(at - b.dir.Clock())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
