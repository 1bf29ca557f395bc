package checkpoint

import (
	"fmt"
	"math"
	"time"
)

// Policy says when a running job's record is worth a write. A field that is not
// positive has its default. docs/jobs.md has the reasons.
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

// usableNotice is how much of a notice there is to send states in: of the 10 s
// of a Preempt three quarters at most, less the poll and the handlers' return.
// A state that takes longer is not saved by a notice.
const usableNotice = 5 * time.Second

// Losses are how VMs like this one were lost, over all the time that they were
// watched. The zero value is: nothing was observed yet.
type Losses struct {
	Watched time.Duration // of all VMs together
	Warned  int           // lost after a notice that the worker could act on
	Sudden  int           // lost without a word: no usable notice, a crash, a kill
}

// mean returns the expected time between two of that many events, by a Gamma
// prior on their rate with the weight of one event: before anything was observed
// it is 1/rate, as if one event had been seen in that time.
//
// The posterior of Gamma(1, 1/rate) after n events in time t is
// Gamma(1+n, 1/rate+t), whose mean rate is the quotient.
func (l Losses) mean(events int, rate float64) time.Duration {
	prior := float64(time.Hour) / rate
	return time.Duration(min((prior+float64(l.Watched))/float64(1+events), math.MaxInt64/2))
}

// MeanBetween returns the mean time between two losses that would cost the job
// what it did since its last save. A state that can be sent within a notice is
// lost by sudden ends alone; one that cannot, by every eviction.
func (p Policy) MeanBetween(job Situation) time.Duration {
	p = p.orDefaults()
	events := job.Losses.Sudden
	if job.Cost > usableNotice {
		events += job.Losses.Warned
	}
	return job.Losses.mean(events, p.EvictionRate)
}

// IntervalFor returns how long after its last write a job's changed state is
// saved: what was given, or else what costs the least on average, within
// Shortest and Longest. Where notices cannot be relied on it is Shortest. After
// a try that failed it is as short as progress allows.
//
// It is never shorter than a save takes, so that no more than half of the time
// is spent on saving, and never longer than TouchEvery.
func (p Policy) IntervalFor(job Situation) time.Duration {
	p = p.orDefaults()
	if p.Interval > 0 {
		return min(p.Interval, p.TouchEvery)
	}
	interval := youngDaly(job.Cost, p.MeanBetween(job))
	if job.Unwarned || job.Failed || job.Unproven {
		interval = 0
	}
	interval = max(min(interval, p.Longest), p.Shortest, job.Cost)
	return min(interval, p.TouchEvery)
}

// youngDaly returns the time of work between two saves that costs the least on
// average, where a save takes cost and losses are a Poisson process with that
// mean time between them: the first-order solution of J. T. Daly, "A higher order
// estimate of the optimum checkpoint interval for restart dumps" (2006), after
// J. W. Young (1974). Beyond half the mean it is no better than the mean itself
// as an order of magnitude; it stays where it is there, so that it never falls
// when a save takes longer.
func youngDaly(cost, mean time.Duration) time.Duration {
	c, m := float64(min(cost, mean/2)), float64(mean)
	return time.Duration(math.Sqrt(2*c*m) - c)
}

// Cost is a moving average of what the saves of one job take. The zero value
// knows nothing.
//
// The first two count by the smaller of them, and later ones for at most four
// times the average: one save that met an outage must not make those after it
// rare. A state that grows for good is followed within a few saves.
type Cost struct {
	saves int
	mean  time.Duration
}

// Add takes note of a save that took effect.
func (c *Cost) Add(took time.Duration) {
	took = max(took, time.Microsecond)
	switch c.saves++; c.saves {
	case 1:
		c.mean = took
	case 2:
		c.mean = min(c.mean, took)
	default:
		c.mean += (min(took, 4*c.mean) - c.mean) / 4
	}
}

// Mean returns the average; 0 until two saves are known.
func (c *Cost) Mean() time.Duration {
	if c.saves < 2 {
		return 0
	}
	return c.mean
}
