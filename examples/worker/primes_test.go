package main

import (
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

// TestPrimesSurviveEvictions is all it takes to know that a handler can be
// interrupted anywhere.
func TestPrimesSurviveEvictions(t *testing.T) {
	jobtest.Run(t, func() job.Handler { return primes }, jobtest.Case{
		Payload: []byte(`{"from": 1000000, "to": 2300000}`),
	})
}

func TestPrimes(t *testing.T) {
	for payload, want := range map[string]string{
		`{"from": 0, "to": 0}`:             `{"primes":0}`,
		`{"from": 0, "to": 30}`:            `{"primes":10}`,
		`{"from": 2, "to": 3}`:             `{"primes":1}`,
		`{"from": 24, "to": 29}`:           `{"primes":0}`,
		`{"from": 0, "to": 10000000}`:      `{"primes":664579}`,
		`{"from": 9000000, "to": 9000012}`: `{"primes":1}`, // 9000011
	} {
		got, err := primes.Run(t.Context(), job.New(job.Spec{Payload: []byte(payload)}, nil))
		if err != nil || string(got) != want {
			t.Errorf("primes of %s = %s, %v, want %s", payload, got, err, want)
		}
	}
}

func TestPayloadsThatCannotBeRight(t *testing.T) {
	for _, payload := range []string{``, `[]`, `{"from": "one"}`, `{"from": 2, "to": 1}`, `{"from": 0, "to": 4294967296}`} {
		_, err := primes.Run(t.Context(), job.New(job.Spec{Payload: []byte(payload)}, nil))
		if !job.IsPermanent(err) || !strings.Contains(err.Error(), "payload") {
			t.Errorf("primes of %s = %v, want a permanent error about the payload", payload, err)
		}
	}
}
