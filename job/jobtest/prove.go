package jobtest

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/job"
)

// trial is what is known of a job, and how it is tried.
type trial struct {
	Case
	newHandler func() job.Handler

	result        []byte // of the uninterrupted run
	reports       int
	looks         int
	effects       ledger
	places        ranks
	runs          int
	interruptions int
}

// prove does what [Run] promises. The error is the story of a failure.
func prove(ctx context.Context, newHandler func() job.Handler, c Case) (summary string, err error) {
	c.setDefaults()
	t := &trial{Case: c, newHandler: newHandler}
	if err := t.reference(ctx); err != nil {
		return "", err
	}
	jobs, sampled := plan(t.reports, t.looks, t.Runs-t.runs, t.Seed)
	for _, job := range jobs {
		if err := t.try(ctx, job); err != nil {
			return "", err
		}
	}
	return t.summary(sampled), nil
}

// reference does the job without interruption, twice, and where there are effects
// another job, whose keys must be others.
func (t *trial) reference(ctx context.Context) error {
	first := t.begin()
	if err := t.untouched(ctx, first, nil); err != nil {
		return err
	}
	t.learn(first.runs[0])

	second := t.begin()
	if err := t.untouched(ctx, second, t.places); err != nil {
		return err
	}
	if f := t.compare(second.runs[0].result); f != nil {
		f.what = "two uninterrupted runs differ: " + f.what
		f.hint = "The job depends on more than its payload: time, chance, or what an earlier job left in memory. If both results mean the same, say so in Case.Same."
		return second.fail(f)
	}
	if len(t.effects.byKey) == 0 {
		return nil
	}
	id := t.ID
	defer func() { t.ID = id }()
	t.ID += "-other"
	other := t.begin()
	if err := t.untouched(ctx, other, nil); err != nil {
		return err
	}
	if f := t.Effects.ledger().sharesKey(t.effects); f != nil {
		return other.fail(f)
	}
	return nil
}

// untouched is one run that nobody interrupts, of a job that has just begun.
func (t *trial) untouched(ctx context.Context, s *story, places ranks) error {
	r := t.call(ctx, s, nil, nil, places)
	switch {
	case r.broke() != nil:
		return s.fail(r.broke())
	case r.err != nil:
		return s.fail(&fault{what: "the handler fails without any interruption", detail: r.err.Error()})
	}
	if f := t.Effects.ledger().conflict(); f != nil {
		return s.fail(f)
	}
	if err := t.Check(r.result); err != nil {
		return s.fail(&fault{what: "Case.Check fails without any interruption", detail: err.Error()})
	}
	return nil
}

// learn keeps what the first run showed.
func (t *trial) learn(r *run) {
	t.result, t.reports, t.looks = r.result, r.reports, r.looks
	t.effects = t.Effects.ledger()
	if t.places = r.learned; r.repeats {
		t.places = ranks{} // the order of states that come again says nothing
	}
}

// begin does the job anew.
func (t *trial) begin() *story {
	t.Reset()
	t.Effects.reset()
	return &story{}
}

// try does a job that is interrupted at the given moments.
func (t *trial) try(ctx context.Context, all interruptions) error {
	s := t.begin()
	var from *state
	for i := 0; ; i++ {
		var m *moment
		if i < len(all) {
			m = &all[i]
		}
		r := t.call(ctx, s, from, m, t.places)
		if f := t.outcome(r); f != nil {
			return s.failWanting(f, t.result)
		}
		if r.err == nil && !r.killed {
			break
		}
		t.interruptions++
		from = r.recorded()
	}
	f := t.compare(s.runs[len(s.runs)-1].result)
	if f == nil {
		return nil
	}
	return s.failWanting(f, t.result)
}

// outcome says what is wrong with one run, whatever the job comes to.
func (t *trial) outcome(r *run) *fault {
	if f := r.broke(); f != nil {
		return f // the handler may be running still
	}
	switch {
	case r.err == nil || r.stopped:
		return nil
	case r.from == nil:
		return &fault{what: "a run fails that nobody stopped", detail: r.err.Error()}
	}
	return &fault{what: "the handler cannot go on from its own state", detail: r.err.Error(), hint: "What is recorded is the bytes and the version, nothing else: all that the next run needs must be in them."}
}

// compare says how the end of a job differs from that of an uninterrupted one.
func (t *trial) compare(result []byte) *fault {
	if !t.Same(t.result, result) {
		return &fault{
			what: "the result differs", detail: fmt.Sprintf("got %s, want %s", show(result), show(t.result)),
			hint: "The state lacks something that the result depends on, or was captured before the work that it stands for was done, or a handler that was stopped returned no error.",
		}
	}
	if f := t.Effects.ledger().differs(t.effects); f != nil {
		return f
	}
	if err := t.Check(result); err != nil {
		return &fault{what: "Case.Check fails", detail: err.Error()}
	}
	return nil
}

// call is one run of the handler.
func (t *trial) call(ctx context.Context, s *story, from *state, m *moment, places ranks) *run {
	t.runs++
	r := &run{c: &t.Case, number: len(s.runs) + 1, from: from, moment: m, places: places}
	s.runs = append(s.runs, r)
	r.call(ctx, t.newHandler())
	return r
}

func (t *trial) summary(sampled bool) string {
	sample := ""
	if sampled {
		sample = fmt.Sprintf("; not at each of them, but at a sample with seed %d (Case.Runs, Case.Seed)", t.Seed)
	}
	return fmt.Sprintf("jobtest: %d runs with %s of a handler that makes %s and %s at its context%s",
		t.runs, count(t.interruptions, "interruption"), count(t.reports, "report"), count(t.looks, "look"), sample)
}
