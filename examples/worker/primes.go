package main

import (
	"context"
	"encoding/json"
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

// payload is what the producer sends: count the primes p with From ≤ p < To.
type payload struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// state is all that another worker needs in order to resume.
type state struct {
	Next   uint64 `json:"next"` // the first number that was not looked at
	Primes uint64 `json:"primes"`
}

// countPrimes is the handler of the kind "primes". Stopped at any moment, it goes
// on from the last step that it reported.
func countPrimes(ctx context.Context, j *job.Job) ([]byte, error) {
	p, err := parse(j.Payload)
	if err != nil {
		return nil, job.Permanent(err) // no further attempt can succeed
	}
	s, err := resume(j, p)
	if err != nil {
		return nil, err
	}
	for s.Next < p.To {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // everything reported is kept
		}
		end := min(s.Next+step, p.To)
		s.Primes += sieve(s.Next, end)
		s.Next = end
		if err := report(j, p, s); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]uint64{"primes": s.Primes})
}

func parse(raw []byte) (payload, error) {
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf(`payload must be like {"from": 0, "to": 1000000}: %w`, err)
	}
	if p.From > p.To || p.To > math.MaxUint32 {
		return p, errors.New("payload must have from <= to, and to below 2^32")
	}
	return p, nil
}

// resume returns the recorded state, or the one to begin with.
func resume(j *job.Job, p payload) (state, error) {
	if err := j.CheckVersion(stateVersion); err != nil {
		return state{}, err // an older worker: one that knows the state can resume
	}
	saved, _, ok := j.Saved()
	if !ok {
		return state{Next: p.From}, nil
	}
	var s state
	if err := json.Unmarshal(saved, &s); err != nil {
		return state{}, job.Permanent(fmt.Errorf("recorded state: %w", err))
	}
	return s, nil
}

func report(j *job.Job, p payload, s state) error {
	saved, err := json.Marshal(s)
	if err != nil {
		return err
	}
	j.Report(job.Progress{
		State: saved, Version: stateVersion,
		Fraction: float64(s.Next-p.From) / float64(p.To-p.From),
		Text:     fmt.Sprintf("%d primes below %d", s.Primes, s.Next),
	})
	return nil
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
