package checkpoint

import "time"

// Policy says when a running job's record is worth a write. A field that is not
// positive has its default.
type Policy struct {
	// Interval is how long after a write the next changed state is saved.
	// Default 5 s; TouchEvery is its upper bound.
	Interval time.Duration

	// FirstAfter is how long a job may run before it gets a record although it
	// reported nothing, so that operators see it. Default 10 s.
	FirstAfter time.Duration

	// TouchEvery is the longest time between two writes of a running job's
	// record. It must stay well under the hour after which a duplicate takes
	// the record over. Default 5 min.
	TouchEvery time.Duration
}

// DefaultPolicy returns the defaults.
func DefaultPolicy() Policy {
	return Policy{Interval: 5 * time.Second, FirstAfter: 10 * time.Second, TouchEvery: 5 * time.Minute}
}

func (p Policy) orDefaults() Policy {
	d := DefaultPolicy()
	for _, field := range []struct{ given, usual *time.Duration }{
		{&p.Interval, &d.Interval}, {&p.FirstAfter, &d.FirstAfter}, {&p.TouchEvery, &d.TouchEvery},
	} {
		if *field.given <= 0 {
			*field.given = *field.usual
		}
	}
	return p
}

// Situation is what the policy needs to know about a running job.
type Situation struct {
	Since     time.Time // when the claim began
	Written   bool      // whether there is a record
	WrittenAt time.Time // when it was last written, or tried to be; zero for never
	Changed   bool      // whether a state was reported that is not recorded
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
	if !job.Written && job.WrittenAt.IsZero() {
		touchAt = job.Since.Add(p.FirstAfter)
	}
	saveAt := last.Add(p.Interval)
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
	return Nothing, min(wait, p.Interval)
}
