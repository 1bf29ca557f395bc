package checkpoint

import (
	"math"
	"time"
)

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
