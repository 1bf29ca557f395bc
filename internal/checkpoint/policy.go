package checkpoint

import (
	"fmt"
	"math"
	"time"
)

// Policy decides when a running job's record is written. A field that is not
// positive has its default. docs/jobs.md describes it for users.
type Policy struct {
	// Interval is how long after a write the next changed state is saved.
	// Default: by Young and Daly's formula, see [Policy.IntervalFor].
	Interval time.Duration

	// EvictionRate is the expected number of evictions per hour of a VM, before
	// any were observed. Default 0.05. Azure does not publish how many evictions
	// come without a usable notice, so the policy takes all of them as sudden: it
	// saves too often until losses are observed. At 0.05, 20 h without a sudden
	// loss double the mean time between losses.
	EvictionRate float64

	// FirstAfter is how long a job may run before it gets a record even without a
	// report, so that operators see it. Default 10 s.
	FirstAfter time.Duration

	// TouchEvery is the longest time between two writes of a running job's
	// record, and so the longest interval. It must stay well under the hour after
	// which a duplicate acquires the record. Default 10 min.
	TouchEvery time.Duration
}

// Shortest is the shortest interval that is chosen, and the interval while notices cannot be
// relied on: then a sudden loss redoes no more than about 5 s of work, and a job with a small state
// costs at most 12 calls a minute.
const Shortest = 5 * time.Second

// DefaultPolicy returns the defaults.
func DefaultPolicy() Policy {
	return Policy{EvictionRate: 0.05, FirstAfter: 10 * time.Second, TouchEvery: 10 * time.Minute}
}

func (p Policy) orDefaults() Policy {
	d := DefaultPolicy()
	if p.FirstAfter <= 0 {
		p.FirstAfter = d.FirstAfter
	}
	if p.TouchEvery <= 0 {
		p.TouchEvery = d.TouchEvery
	}
	if !(p.EvictionRate > 0) {
		p.EvictionRate = d.EvictionRate
	}
	return p
}

// minInterval keeps a worker from spending all its time on saves.
const minInterval = 100 * time.Millisecond

// Validate returns an error that states what to change, or nil.
func (p Policy) Validate() error {
	given := p
	p = p.orDefaults()
	switch {
	case given.Interval != 0 && (p.Interval < minInterval || p.Interval > p.TouchEvery):
		return fmt.Errorf("checkpoint interval %s is out of range: give %s to %s, or 0 to have it chosen", p.Interval, minInterval, p.TouchEvery)
	case given.EvictionRate < 0 || p.EvictionRate > 1:
		return fmt.Errorf("eviction rate %g is out of range: give more than 0, up to 1 an hour", given.EvictionRate)
	}
	return nil
}

// Situation holds the policy's facts about a running job.
type Situation struct {
	Since     time.Time // when the claim began
	Written   bool      // whether there is a record
	WrittenAt time.Time // when the last write or attempt ended; zero for never
	Failed    bool      // whether that attempt failed
	Changed   bool      // whether a reported state is not recorded yet

	Cost     time.Duration // how long a save takes; 0 if not known
	Losses   Losses        // the observations of VMs like this one
	Unwarned bool          // whether notices may not arrive at present
	Unproven bool          // whether earlier claims ended uncleanly, and nothing was stored since
}

// Due is the write that a record needs.
type Due int

// Writes that a record may need.
const (
	Nothing Due = iota
	DueTouch
	DueSave
)

// Next returns the write that the record needs now and, if it needs none, how long to
// wait at most before calling Next again.
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
		return DueSave, 0 // also when only a touch is due: it costs a write as well
	case !now.Before(touchAt):
		return DueTouch, 0
	}
	// A state may be reported at any moment; check again when it could be saved.
	wait := touchAt.Sub(now)
	if until := saveAt.Sub(now); until > 0 {
		return Nothing, min(wait, until)
	}
	return Nothing, min(wait, max(interval, minInterval))
}

// usableNotice is the part of a notice in which states can be sent: at most three
// quarters of the 10 s of a Preempt, less the poll and the handlers' return. A
// state that takes longer to send cannot be saved after a notice.
const usableNotice = 5 * time.Second

// OutlastsNotice reports whether a save that takes this long cannot be made after a notice. Then
// the checkpoint before stands.
func OutlastsNotice(cost time.Duration) bool { return cost > usableNotice }

// Losses counts how VMs like this one were lost while they were observed. The zero
// value means that none were observed.
type Losses struct {
	Watched time.Duration // of all VMs together
	Warned  int           // lost after a notice that the worker could act on
	Sudden  int           // lost without a usable notice: also by a crash or a kill
}

// mean returns the expected time between two events, given how many were observed.
// It uses a Gamma prior on their rate with the weight of one event: without
// observations the mean is 1/rate, as if one event had occurred in that time.
//
// The posterior of Gamma(1, 1/rate) after n events in time t is
// Gamma(1+n, 1/rate+t), whose mean rate is the quotient.
func (l Losses) mean(events int, rate float64) time.Duration {
	prior := float64(time.Hour) / rate
	return time.Duration(min((prior+float64(l.Watched))/float64(1+events), math.MaxInt64/2))
}

// MeanBetween returns the mean time between two losses that would cost the job its
// work since the last save. Work whose state can be sent within a notice is lost
// only by sudden losses; other work by every eviction.
func (p Policy) MeanBetween(job Situation) time.Duration {
	p = p.orDefaults()
	events := job.Losses.Sudden
	if OutlastsNotice(job.Cost) {
		events += job.Losses.Warned
	}
	return job.Losses.mean(events, p.EvictionRate)
}

// IntervalFor returns how long after its last write a job's changed state is
// saved: Interval if it is set, or else the interval with the least average cost,
// within [Shortest] and TouchEvery. If notices may not arrive, the last attempt failed,
// or earlier claims ended uncleanly, the interval is Shortest.
//
// The interval is never shorter than a save takes, so that at most half of the time
// is spent on saving, unless that is longer than TouchEvery.
func (p Policy) IntervalFor(job Situation) time.Duration {
	p = p.orDefaults()
	if p.Interval > 0 {
		return min(p.Interval, p.TouchEvery)
	}
	interval := youngDaly(job.Cost, p.MeanBetween(job))
	if job.Unwarned || job.Failed || job.Unproven {
		interval = 0
	}
	return min(max(interval, Shortest, job.Cost), p.TouchEvery)
}

// Expected returns how long after a write that took effect the record of a running job is
// written again. silent is for how long its handler has reported no state, if it never
// did: then it is expected to take as long again. A job that has reported one is saved when
// that is due.
func (p Policy) Expected(job Situation, silent time.Duration) time.Duration {
	p = p.orDefaults()
	switch {
	case job.Unproven && job.WrittenAt.IsZero():
		return p.FirstAfter // or at the first report
	case silent > 0:
		return min(max(silent, p.IntervalFor(job)), p.TouchEvery)
	}
	return p.IntervalFor(job) + job.Cost
}

// ShareLost returns the expected share of a job's time that losses cost: for each loss
// half an interval of work and the save that was under way.
func (p Policy) ShareLost(job Situation) float64 {
	return (float64(p.IntervalFor(job))/2 + float64(job.Cost)) / float64(p.MeanBetween(job))
}

// youngDaly returns the time between two saves with the least average cost, if a
// save takes cost and losses are a Poisson process with that mean time between
// them: the first-order solution of J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps" (2006), after J. W. Young (1974).
// The formula is forgiving: the interval wastes at most 5 % more time than the best of
// many tried; half or twice the interval wastes a quarter more (TestYoungDalyIsNearTheBest).
// The formula does not hold for a cost beyond half the mean. The cost is capped
// there, so that the interval never falls when a save takes longer.
func youngDaly(cost, mean time.Duration) time.Duration {
	c, m := float64(min(cost, mean/2)), float64(mean)
	return time.Duration(math.Sqrt(2*c*m) - c)
}

// Cost is a moving average of how long the saves of one job take. The zero value is
// ready to use.
//
// The average starts with the smaller of the first two saves, and each later save
// counts for at most four times the average: one save during an outage must not
// make later saves rare. The average follows a growing state within a few saves.
// A save runs in parallel with the handler, so Cost is an upper bound of its cost.
type Cost struct {
	saves int
	mean  time.Duration
}

// Add records how long a save took that took effect.
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
