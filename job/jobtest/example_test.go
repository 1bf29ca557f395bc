package jobtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/spotworker/spotworker/job"
	"github.com/spotworker/spotworker/job/jobtest"
)

// sum adds up the numbers of its payload, one after another.
func sum(ctx context.Context, j *job.Job) ([]byte, error) {
	var numbers []int
	if err := json.Unmarshal(j.Payload, &numbers); err != nil {
		return nil, job.Permanent(err)
	}
	if err := j.CheckVersion(1); err != nil {
		return nil, err
	}
	var state struct{ Next, Sum int }
	if saved, _, ok := j.Saved(); ok {
		if err := json.Unmarshal(saved, &state); err != nil {
			return nil, job.Permanent(err)
		}
	}
	for state.Next < len(numbers) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		state.Sum += numbers[state.Next]
		state.Next++
		saved, err := json.Marshal(state)
		if err != nil {
			return nil, err
		}
		j.Report(job.Progress{State: saved, Version: 1, Fraction: float64(state.Next) / float64(len(numbers))})
	}
	return []byte(strconv.Itoa(state.Sum)), nil
}

// TestSum is the whole test of a handler that changes nothing outside.
func TestSum(t *testing.T) {
	jobtest.Run(t, func() job.Handler { return job.HandlerFunc(sum) }, jobtest.Case{Payload: []byte(`[3, 1, 4, 1, 5]`)})
}

// In a test of your package, with a handler and a payload of yours.
func ExampleRun() {
	testSum := func(t *testing.T) {
		jobtest.Run(t, func() job.Handler { return job.HandlerFunc(sum) }, jobtest.Case{
			Payload: []byte(`[3, 1, 4, 1, 5]`),
		})
	}
	fmt.Printf("%T\n", testSum)
	// Output: func(*testing.T)
}

// invoicer writes to customers through a service that takes idempotency keys.
type invoicer struct{ mails mailService }

type mailService interface {
	send(key, mail string)
}

func (h *invoicer) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	if err := j.CheckVersion(0); err != nil { // as yet its states have no version
		return nil, err
	}
	sent := 0
	if saved, _, ok := j.Saved(); ok {
		var err error
		if sent, err = strconv.Atoi(string(saved)); err != nil {
			return nil, job.Permanent(err)
		}
	}
	for customer := sent; customer < 5; customer++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		mail := fmt.Sprintf("invoice for customer %d", customer)
		h.mails.send(j.Key(mail), mail)
		j.Report(job.Progress{State: []byte(strconv.Itoa(customer + 1))})
	}
	return nil, nil
}

// fakeMails stands for the service in tests.
type fakeMails struct{ effects *jobtest.Effects }

func (f fakeMails) send(key, mail string) { f.effects.Apply(key, mail) }

// TestInvoicer is the test of a handler with effects outside: each takes place once,
// even if the worker is interrupted.
func TestInvoicer(t *testing.T) {
	effects := &jobtest.Effects{}
	newHandler := func() job.Handler { return &invoicer{mails: fakeMails{effects}} }
	jobtest.Run(t, newHandler, jobtest.Case{Effects: effects})
}

// A fake of a service hands its calls to Effects.
func ExampleEffects() {
	effects := &jobtest.Effects{}
	mails := fakeMails{effects}
	j := job.New(job.Spec{ID: "invoices-2026-03"}, nil)
	mails.send(j.Key("customer 7"), "invoice for customer 7")
	again := effects.Apply(j.Key("customer 7"), "invoice for customer 7")
	fmt.Println("sent again:", again)
	// Output: sent again: false
}
