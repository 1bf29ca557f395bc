package activity

import "math"

// Runs are the ends of runs of a kind.
type Runs struct{ Done, Failed int }

func (r Runs) all() float64 { return float64(r.Done + r.Failed) }

// share returns the part of the runs that failed.
func (r Runs) share() float64 { return float64(r.Failed) / r.all() }

const (
	// leastFailed is how many runs must have failed in one place, and leastElsewhere how many
	// runs must have ended elsewhere, before the two are compared.
	leastFailed    = 5
	leastElsewhere = 10

	// leastShare is the part of the runs that must fail in one place, and timesElsewhere how
	// many times the part elsewhere that must be.
	leastShare     = 0.25
	timesElsewhere = 3

	// standardErrors is by how many standard errors the two parts must differ. By chance that
	// happens once in 30,000 comparisons.
	standardErrors = 4
)

// StandsOut reports whether far more runs of a kind fail in one place, such as a machine,
// than elsewhere, so that the place is to blame and not the kind. Small samples do not stand
// out, and no place does where the kind fails everywhere.
//
// It compares the two parts as a test of two proportions does, with one standard error for
// both.
func StandsOut(here, elsewhere Runs) bool {
	if here.Failed < leastFailed || elsewhere.all() < leastElsewhere {
		return false
	}
	if here.share() < leastShare || here.share() < timesElsewhere*elsewhere.share() {
		return false
	}
	together := float64(here.Failed+elsewhere.Failed) / (here.all() + elsewhere.all())
	deviation := math.Sqrt(together * (1 - together) * (1/here.all() + 1/elsewhere.all()))
	return here.share()-elsewhere.share() >= standardErrors*deviation
}
