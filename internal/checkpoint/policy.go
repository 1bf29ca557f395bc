package checkpoint

import (
	"fmt"
	"time"
)

// Policy says when a running job's record is worth a write. A field that is not
// positive has its default. docs/checkpointing.md has the reasons.
type Policy struct {
	// Interval is how long after a write the next changed state is saved.
	// Default: what Young and Daly say, see [Policy.IntervalFor].
	Interval time.Duration

	// Shortest and Longest bound that choice. Default 5 s and 10 min; TouchEvery
	// is an upper bound as well.
	Shortest, Longest time.Duration

	// EvictionRate is how many evictions an hour of a VM is expected to see
	// before anything was observed. Default 0.05.
	EvictionRate float64

	// FirstAfter is how long a job may run before it gets a record although it
	// reported nothing, so that operators see it. Default 10 s.
	FirstAfter time.Duration

	// TouchEvery is the longest time between two writes of a running job's
	// record. It must stay well under the hour after which a duplicate takes
	// the record over. Default 10 min.
	TouchEvery time.Duration
}

// DefaultPolicy returns the defaults.
func DefaultPolicy() Policy {
	return Policy{
		Shortest: 5 * time.Second, Longest: 10 * time.Minute, EvictionRate: 0.05,
		FirstAfter: 10 * time.Second, TouchEvery: 10 * time.Minute,
	}
}

func (p Policy) orDefaults() Policy {
	d := DefaultPolicy()
	for _, field := range []struct{ given, usual *time.Duration }{
		{&p.Shortest, &d.Shortest}, {&p.Longest, &d.Longest}, {&p.FirstAfter, &d.FirstAfter}, {&p.TouchEvery, &d.TouchEvery},
	} {
		if *field.given <= 0 {
			*field.given = *field.usual
		}
	}
	if !(p.EvictionRate > 0) {
		p.EvictionRate = d.EvictionRate
	}
	return p
}

// minInterval keeps a worker from doing nothing but saving.
const minInterval = 100 * time.Millisecond

// Validate says what must be changed, or returns nil.
func (p Policy) Validate() error {
	given := p
	p = p.orDefaults()
	switch {
	case given.Interval != 0 && (p.Interval < minInterval || p.Interval > p.TouchEvery):
		return fmt.Errorf("checkpoint interval %s is out of range: give %s to %s, or 0 to have it chosen", p.Interval, minInterval, p.TouchEvery)
	case given.Shortest < 0 || p.Shortest < minInterval || p.Shortest > p.TouchEvery:
		return fmt.Errorf("shortest checkpoint interval %s is out of range: give %s to %s", given.Shortest, minInterval, p.TouchEvery)
	case given.Longest < 0 || p.Longest < p.Shortest:
		return fmt.Errorf("longest checkpoint interval %s is out of range: give at least the shortest, %s", given.Longest, p.Shortest)
	case given.EvictionRate < 0 || p.EvictionRate > 1:
		return fmt.Errorf("eviction rate %g is out of range: give more than 0, up to 1 an hour", given.EvictionRate)
	}
	return nil
}

// Situation is what the policy needs to know about a running job.
type Situation struct {
	Since     time.Time // when the claim began
	Written   bool      // whether there is a record
	WrittenAt time.Time // when the last write, or the last try, ended; zero for never
	Failed    bool      // whether that was a try only
	Changed   bool      // whether a state was reported that is not recorded

	Cost     time.Duration // what a save takes; 0 if not known
	Losses   Losses        // what was observed of VMs like this one
	Unwarned bool          // whether notices cannot be relied on now
	Unproven bool          // whether earlier claims ended uncleanly, and nothing was stored since
}

// Due is what a record needs.
type Due int

// What a record needs.
const (
	Nothing Due = iota
	DueTouch
	DueSave
)

// Next says what the record needs now and, if it needs nothing, after which
// time to ask again at the latest.
func (p Policy) Next(job Situation, now time.Time) (Due, time.Duration) {
	p = p.orDefaults()
	last := job.Since
	if job.WrittenAt.After(last) {
		last = job.WrittenAt
	}
	touchAt := last.Add(p.TouchEvery)
	interval := p.IntervalFor(job)
	if first := job.WrittenAt.IsZero(); first && (job.Unproven || !job.Written) {
		touchAt = job.Since.Add(p.FirstAfter)
	}
	if job.Unproven && job.WrittenAt.IsZero() {
		interval = 0
	}
	saveAt := last.Add(interval)
	switch {
	case job.Changed && !(now.Before(saveAt) && now.Before(touchAt)):
		return DueSave, 0 // also where only a touch is due: it costs a write as well
	case !now.Before(touchAt):
		return DueTouch, 0
	}
	// A state may be reported at any moment; look again when it could be saved.
	wait := touchAt.Sub(now)
	if until := saveAt.Sub(now); until > 0 {
		return Nothing, min(wait, until)
	}
	return Nothing, min(wait, max(interval, minInterval))
}
