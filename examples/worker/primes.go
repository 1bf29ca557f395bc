package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spotworker/spotworker/job"
)

// stateVersion is the version of the state's format. Raise it when state changes
// its meaning: workers of both versions run side by side during an update.
const stateVersion = 1

// step is how many numbers are looked at between two reports: about a millisecond.
const step = 1 << 18

// payload is the request of the producer: count the primes p with From ≤ p < To.
type payload struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Validate returns why no attempt can succeed, or nil.
func (p payload) Validate() error {
	if p.From > p.To || p.To > math.MaxUint32 {
		return errors.New("payload must have from <= to, and to below 2^32")
	}
	return nil
}

// state is all that another worker needs in order to resume.
type state struct {
	Next   uint64 `json:"next"` // the first number that was not looked at
	Primes uint64 `json:"primes"`
}

// total is the result.
type total struct {
	Primes uint64 `json:"primes"`
}

// primes is the handler of the kind "primes".
var primes = job.Typed(stateVersion, countPrimes)

// countPrimes continues from the last step that was reported, wherever it was stopped.
func countPrimes(ctx context.Context, j *job.TypedJob[payload, state]) (total, error) {
	p, s := j.Payload, &j.State
	if !j.Resumed {
		s.Next = p.From
	}
	for s.Next < p.To {
		if ctx.Err() != nil {
			return total{}, context.Cause(ctx) // everything reported is kept
		}
		end := min(s.Next+step, p.To)
		s.Primes += sieve(s.Next, end)
		s.Next = end
		done := float64(s.Next-p.From) / float64(p.To-p.From)
		if err := j.ReportState(done, fmt.Sprintf("%d primes below %d", s.Primes, s.Next)); err != nil {
			return total{}, err
		}
	}
	return total{s.Primes}, nil
}

// sieve returns how many primes p there are with from ≤ p < to.
func sieve(from, to uint64) (primes uint64) {
	composite := make([]bool, to-from)
	for divisor := uint64(2); divisor*divisor < to; divisor++ {
		first := max(divisor*divisor, (from+divisor-1)/divisor*divisor)
		for n := first; n < to; n += divisor {
			composite[n-from] = true
		}
	}
	for n := max(from, 2); n < to; n++ {
		if !composite[n-from] {
			primes++
		}
	}
	return primes
}
