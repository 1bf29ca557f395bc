package vmshare

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// requestsMost and requestsWindow are the budget of all workers together: the
	// service's limit, in a little more than the second that it counts, because requests
	// take different times to arrive.
	requestsMost   = 5
	requestsWindow = 1150 * time.Millisecond

	// lateness is how much later than its slot a request may be sent. A later one, as of
	// a process that was frozen, reserves another slot instead.
	lateness = 25 * time.Millisecond

	// farAhead is longer than the wait of all polls of all workers together, so no slot
	// can be further in the future.
	farAhead = time.Minute

	// requestsTimeout is how long to wait for the file's lock.
	requestsTimeout = 250 * time.Millisecond

	// ownMost is how many requests a worker sends in ownWindow while the file cannot be
	// used: its share.
	ownMost, ownWindow = 1, time.Second

	maxFile = 64 << 10

	requestsFile = "requests.json"
)

// budget is the rate limit for the requests of all workers of this VM to the metadata
// service.
type budget struct {
	dir    *Dir
	own    preempt.Budget
	broken atomic.Bool
}

// Budget returns the budget that all workers of this VM share: five requests a second. If
// the file cannot be used, each worker sends one request a second.
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
		if err := retry.Sleep(ctx, at-b.dir.Clock()); err != nil {
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

// take reserves the next slot, as [preempt.SlidingWindow.Reserve] does, and releases the
// unused one unless that is zero.
func (b *budget) take(ctx context.Context, u preempt.Urgency, unused time.Duration) (at time.Duration, ok bool, err error) {
	l, err := takeWithin(ctx, b.dir.file(requestsFile), requestsTimeout)
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

// requests is the content of the file: the times of the latest requests since boot, in
// nanoseconds, oldest first.
type requests struct {
	Boot string          `json:"boot"`
	Sent []time.Duration `json:"sent"`
}

// parse returns the slots at now. In a file that is new, or from an earlier boot, all are
// free; in a damaged one all are reserved.
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
		panic("vmshare: numbers do not encode: " + err.Error()) // they always do
	}
	return content
}

// note logs once when the file cannot be used, and when it can be used again.
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
