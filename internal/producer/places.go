package producer

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// MostParallel is how many jobs are put at once at most where their number adapts.
	MostParallel = 128

	// queueRate is how many jobs a second are put on one queue: a little less than the 2,000
	// messages that it takes.
	queueRate = 1900

	// worthwhile is by how much more places must put more jobs a second.
	worthwhile = 1.05

	// tryAgainAfter is how long a number is kept that more jobs at once did not improve.
	tryAgainAfter = time.Minute
)

// places are places for puts in flight. Their number begins at [DefaultParallel] and grows, at most
// to twice as many at a time, until the queues take as many jobs as they can, more places gain
// nothing, or calls are refused because they come too fast. Far from the storage most of a put is
// waiting.
type places struct {
	free   *semaphore.Weighted // of MostParallel; those that may not be used are taken
	queues func() int          // how many queues there are; nil for a number that does not adapt
	refuse func() int64        // how many calls were refused so far because they came too fast

	mu      sync.Mutex // guards what follows
	number  int
	surplus int       // places that are taken away once they are free
	puts    int       // that ended since then
	since   time.Time // when the number was chosen, or judged last
	before  int       // number before it grew
	rate    float64   // puts a second then; 0 if it has not grown since
	refused int64     // calls, then
	next    time.Time // no larger number is tried before
}

// newPlaces returns so many places, or for 0 a number that adapts.
func newPlaces(fixed int, queues func() int, refused func() int64, now time.Time) *places {
	if fixed > 0 {
		return &places{free: semaphore.NewWeighted(int64(fixed)), number: fixed}
	}
	if refused == nil {
		refused = func() int64 { return 0 }
	}
	p := &places{free: semaphore.NewWeighted(MostParallel), number: DefaultParallel, queues: queues,
		refuse: refused, refused: refused(), since: now}
	p.free.TryAcquire(int64(MostParallel - p.number)) // all are free
	return p
}

// take waits for a place.
func (p *places) take(ctx context.Context) error { return p.free.Acquire(ctx, 1) }

// drop gives a place back in which nothing was put.
func (p *places) drop() { p.free.Release(1) }

// leave gives back the place of a put that ended, and judges the number after two rounds.
func (p *places) leave(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.puts++
	if p.surplus > 0 {
		p.surplus--
	} else {
		p.free.Release(1)
	}
	if p.queues != nil && p.puts >= 2*p.number {
		p.judge(now)
	}
}

// judge lets the number grow, or takes back a growth after which calls were refused, or that gained
// too little. The caller holds mu.
func (p *places) judge(now time.Time) {
	rate := float64(p.puts) / max(now.Sub(p.since), time.Microsecond).Seconds()
	refused := p.refuse() - p.refused
	p.puts, p.since, p.refused = 0, now, p.refused+refused
	wanted := min(2*p.number, int(float64(p.number*p.queues()*queueRate)/rate), MostParallel)
	switch {
	case p.rate > 0 && (refused > 0 || rate < worthwhile*p.rate):
		p.surplus += p.number - p.before
		p.number, p.rate, p.next = p.before, 0, now.Add(tryAgainAfter)
	case refused > 0 || wanted <= p.number:
		p.rate, p.next = 0, now.Add(tryAgainAfter)
	case !now.Before(p.next) && p.surplus == 0:
		p.free.Release(int64(wanted - p.number))
		p.before, p.number, p.rate = p.number, wanted, rate
	}
}

// now returns the present number.
func (p *places) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number
}
