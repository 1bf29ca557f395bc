package jobtest

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/job"
)

// maxBreaks is how many breaks a job may take in all (job.Interrupted).
const maxBreaks = 1000

// trial is what is known of a job, and how it is tried.
type trial struct {
	Case
	newHandler func() job.Handler

	result        []byte // of the uninterrupted run
	final         *state // what it ended with, nil for none
	sameEnd       bool   // a second one ended with the same state, after as many reports
	reports       int
	looks         int
	effects       ledger
	places        ranks
	runs          int
	interruptions int
	notElsewhere  string // why the job was not resumed in another process, if it was to be
}

// prove does what [Run] promises. The error is the story of a failure.
func prove(ctx context.Context, newHandler func() job.Handler, c Case) (summary string, err error) {
	c.setDefaults()
	t := &trial{Case: c, newHandler: newHandler}
	if err := t.reference(ctx); err != nil {
		return "", err
	}
	jobs, sampled := plan(t.reports, t.looks, t.Runs-t.runs-t.laterRuns(), t.Seed)
	for _, job := range jobs {
		if err := t.try(ctx, job); err != nil {
			return "", err
		}
	}
	if err := t.sameProcess(ctx); err != nil {
		return "", err
	}
	if err := t.unknownVersion(ctx); err != nil {
		return "", err
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
	t.learn(first)

	second := t.begin()
	if err := t.untouched(ctx, second, t.places); err != nil {
		return err
	}
	t.sameEnd = len(first.runs) == 1 && len(second.runs) == 1 && second.runs[0].reports == t.reports && second.last().recorded().is(t.final)
	if f := t.compare(second.last().result); f != nil {
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

// untouched does a job that nobody interrupts.
func (t *trial) untouched(ctx context.Context, s *story, places ranks) error {
	if f := t.complete(ctx, s, nil, places); f != nil {
		return s.fail(f)
	}
	if f := t.Effects.ledger().conflict(); f != nil {
		return s.fail(f)
	}
	if err := t.Check(s.last().result); err != nil {
		return s.fail(&fault{what: "Case.Check fails without any interruption", detail: err.Error()})
	}
	return nil
}

// learn keeps what the first job showed.
func (t *trial) learn(s *story) {
	first := s.runs[0]
	t.result, t.reports, t.looks = s.last().result, first.reports, first.looks
	t.final = s.last().recorded()
	t.effects = t.Effects.ledger()
	if t.places = first.learned; first.repeats || len(s.runs) > 1 {
		t.places = ranks{} // the order says nothing of states that come again, or not all of it
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
	f := t.complete(ctx, s, all, t.places)
	if f == nil {
		f = t.compare(s.last().result)
	}
	if f == nil {
		return nil
	}
	if f.what == resultDiffers {
		f.hint = t.cause(ctx, s, all)
	}
	return s.failWanting(f, t.result)
}

// complete calls the handler until the job has its result. The runs end early at
// the given moments, and where the handler takes a break.
func (t *trial) complete(ctx context.Context, s *story, all interruptions, places ranks) *fault {
	return t.completeFrom(ctx, s, nil, all, places)
}

// completeFrom is complete for a job that has a recorded state.
func (t *trial) completeFrom(ctx context.Context, s *story, from *state, all interruptions, places ranks) *fault {
	for i := range len(all) + maxBreaks {
		var m *moment
		if i < len(all) {
			m = &all[i]
		}
		r := t.call(ctx, s, from, m, places)
		if f := outcome(r); f != nil {
			return f
		}
		if r.err == nil && !r.killed {
			if f := t.endedEarly(r); f != nil {
				return f
			}
			if !r.stopped || r.showsItsEnd() {
				return nil
			}
		}
		if r.stopped {
			t.interruptions++
		}
		from = r.recorded()
	}
	return &fault{what: "the job never ends", detail: fmt.Sprintf("the handler took %d breaks (job.Interrupted)", maxBreaks)}
}

// outcome says what is wrong with one run, whatever the job comes to.
func outcome(r *run) *fault {
	if f := r.broke(); f != nil {
		return f // the handler may be running still
	}
	switch {
	case r.err == nil || r.stopped || job.IsInterrupted(r.err):
		return nil
	case r.from == nil:
		return &fault{what: "the handler fails without any interruption", detail: r.err.Error()}
	}
	return &fault{what: "the handler cannot go on from its own state", detail: r.err.Error(), hint: "What is recorded is the bytes and the version, nothing else: all that the next run needs must be in them."}
}

// endedEarly returns a fault if a run that was stopped returned no error although
// an uninterrupted one goes on from there. Of a run that was resumed that is known
// only where its last state is one of those of an uninterrupted run.
func (t *trial) endedEarly(r *run) *fault {
	if !r.stopped {
		return nil
	}
	var detail string
	last := r.recorded()
	switch rank := last.rankIn(t.places); {
	case r.from == nil && t.sameEnd && !last.is(t.final):
		detail = fmt.Sprintf("its last state was %s; an uninterrupted run ends with %s", last, t.final)
	case r.from == nil && t.sameEnd && r.reports < t.reports:
		detail = fmt.Sprintf("it made %s; an uninterrupted run makes %d", count(r.reports, "report"), t.reports)
	case r.from != nil && rank > 0 && rank < len(t.places):
		detail = fmt.Sprintf("its last state was %s, which is state %d of %d of an uninterrupted run", last, rank, len(t.places))
	default:
		return nil
	}
	return &fault{
		what: "a run that was stopped returned no error before the job was done", detail: detail,
		hint: "Once ctx is cancelled return an error, context.Cause(ctx) for instance. No error says that the job is done: its result is committed, and nobody does the rest.",
	}
}

// resultDiffers is the fault whose cause is worth a search.
const resultDiffers = "the result differs"

// cause is the likely cause of a result that differs. It does the job again with
// one handler for all of its runs: what is right then was kept in the handler.
func (t *trial) cause(ctx context.Context, s *story, all interruptions) string {
	h := t.newHandler()
	newHandler := t.newHandler
	defer func() { t.newHandler = newHandler }()
	t.newHandler = func() job.Handler { return h }
	again := t.begin()
	if f := t.complete(ctx, again, all, t.places); f == nil && t.Same(t.result, again.last().result) {
		return "Something that the result depends on is kept in the handler's own memory: with one handler for all of these runs the result is right. " +
			"A worker that starts again has a new handler and the recorded state, nothing else: put it into the state."
	}
	if len(s.runs) > 1 && s.last().from == nil {
		return "The last run began with nothing and its result differs all the same: an earlier run left something behind, " +
			"in a package-level variable, or outside where Case.Reset does not reach."
	}
	return "The state lacks something that the result depends on, such as a variable of Run, or it was captured before the work that it stands for was done: report after the work."
}

// compare says how the end of a job differs from that of an uninterrupted one.
func (t *trial) compare(result []byte) *fault {
	if !t.Same(t.result, result) {
		return &fault{
			what: resultDiffers, detail: fmt.Sprintf("got %s, want %s", show(result), show(t.result)),
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
	if t.notElsewhere != "" {
		sample += "; " + t.notElsewhere
	}
	return fmt.Sprintf("jobtest: %d runs with %s of a handler that makes %s and %s at its context%s",
		t.runs, count(t.interruptions, "interruption"), count(t.reports, "report"), count(t.looks, "look"), sample)
}
