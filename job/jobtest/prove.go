package jobtest

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/job"
)

// maxBreaks is how many breaks a job may take in all (job.Interrupted).
const maxBreaks = 1000

// trial is a job under test and the findings of its uninterrupted run.
type trial struct {
	Case
	newHandler func() job.Handler

	result              []byte      // of the uninterrupted run
	final               *savedState // its last state, nil for none
	sameEnd             bool        // a second one ended with the same state, after as many reports
	reports             int
	checks              int
	effects             ledger
	places              ranks
	runs                int
	interruptions       int
	otherProcessSkipped string // why the job was not resumed in another process, if it was to be
}

// prove runs the whole test. The error describes the first failure.
func prove(ctx context.Context, newHandler func() job.Handler, c Case) (summary string, err error) {
	c.setDefaults()
	t := &trial{Case: c, newHandler: newHandler}
	if err := t.reference(ctx); err != nil {
		return "", err
	}
	jobs, sampled := plan(t.reports, t.checks, t.Runs-t.runs-t.laterRuns(), t.Seed)
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

// reference does the job twice without interruption. If it has effects with keys, it also
// does another job, which must have other keys.
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
		f.hint = "The job depends on more than its payload: time, chance, or what an earlier job left in memory. If both results are " +
			"equivalent, compare them in Case.Same."
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

// untouched does a job without interruption.
func (t *trial) untouched(ctx context.Context, s *story, places ranks) error {
	if f := t.complete(ctx, s, nil, places); f != nil {
		return s.fail(f)
	}
	if f := t.Effects.ledger().conflict(); f != nil {
		return s.fail(f)
	}
	if err := t.Check(s.last().result); err != nil {
		return s.fail(&defect{what: "Case.Check fails without any interruption", detail: err.Error()})
	}
	return nil
}

// learn records the outcome of the first job.
func (t *trial) learn(s *story) {
	first := s.runs[0]
	t.result, t.reports, t.checks = s.last().result, first.reports, first.checks
	t.final = s.last().recorded()
	t.effects = t.Effects.ledger()
	if t.places = first.learned; first.repeats || len(s.runs) > 1 {
		t.places = ranks{} // no order of states is known if some repeat or a break cuts the run
	}
}

// begin resets everything for a new job.
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

// complete calls the handler until the job has its result. It interrupts the runs at the
// given moments; breaks of the handler end them too.
func (t *trial) complete(ctx context.Context, s *story, all interruptions, places ranks) *defect {
	return t.completeFrom(ctx, s, nil, all, places)
}

// completeFrom is complete for a job that has a recorded state.
func (t *trial) completeFrom(ctx context.Context, s *story, from *savedState, all interruptions, places ranks) *defect {
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
			if !r.stopped || r.provesItsEnd() {
				return nil
			}
		}
		if r.stopped {
			t.interruptions++
		}
		from = r.recorded()
	}
	return &defect{what: "the job never ends", detail: fmt.Sprintf("the handler took %d breaks (job.Interrupted)", maxBreaks)}
}

// outcome returns a fault of one run, independent of the job's result.
func outcome(r *handlerCall) *defect {
	if f := r.firstFault(); f != nil {
		return f // the handler may still be running
	}
	switch {
	case r.err == nil || r.stopped || job.IsInterrupted(r.err):
		return nil
	case r.from == nil:
		return &defect{what: "the handler fails without any interruption", detail: r.err.Error()}
	}
	return &defect{what: "the handler cannot continue from its own state", detail: r.err.Error(),
		hint: "Only the bytes and the version are saved: all that the next run needs must be in them."}
}

// endedEarly returns a fault if a stopped run returned no error although an uninterrupted
// one continues from there. For a resumed run that is known only if its last state is one
// of an uninterrupted run.
func (t *trial) endedEarly(r *handlerCall) *defect {
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
	return &defect{
		what: "a run that was stopped returned no error before the job was done", detail: detail,
		hint: "Return an error after ctx is cancelled, for instance context.Cause(ctx). No error means that the job is done: its result is " +
			"committed, and the rest is never done.",
	}
}

// resultDiffers is the fault for which cause is called.
const resultDiffers = "the result differs"

// cause returns the likely cause of a result that differs. It does the job again with one
// handler for all runs: if the result is right then, the handler kept something in memory.
func (t *trial) cause(ctx context.Context, s *story, all interruptions) string {
	h := t.newHandler()
	newHandler := t.newHandler
	defer func() { t.newHandler = newHandler }()
	t.newHandler = func() job.Handler { return h }
	again := t.begin()
	if f := t.complete(ctx, again, all, t.places); f == nil && t.Same(t.result, again.last().result) {
		return "The handler keeps something in memory that the result depends on: with one handler for all of these runs the result is right. " +
			"A restarted worker has a new handler and the recorded state, nothing else: put it into the state."
	}
	if len(s.runs) > 1 && s.last().from == nil {
		return "The last run was a fresh start and its result still differs: an earlier run left something behind, " +
			"in a package-level variable, or outside where Case.Reset does not undo it."
	}
	return "The state lacks something that the result depends on, such as a variable of Run, or it was captured before the work that it " +
		"stands for was done: report after the work."
}

// compare returns a fault if a job ends differently from an uninterrupted job.
func (t *trial) compare(result []byte) *defect {
	if !t.Same(t.result, result) {
		return &defect{
			what: resultDiffers, detail: fmt.Sprintf("got %s, want %s", show(result), show(t.result)),
		}
	}
	if f := t.Effects.ledger().differs(t.effects); f != nil {
		return f
	}
	if err := t.Check(result); err != nil {
		return &defect{what: "Case.Check fails", detail: err.Error()}
	}
	return nil
}

// call is one run of the handler.
func (t *trial) call(ctx context.Context, s *story, from *savedState, m *moment, places ranks) *handlerCall {
	t.runs++
	r := &handlerCall{c: &t.Case, number: len(s.runs) + 1, from: from, moment: m, places: places}
	s.runs = append(s.runs, r)
	r.call(ctx, t.newHandler())
	return r
}

func (t *trial) summary(sampled bool) string {
	sample := ""
	if sampled {
		sample = fmt.Sprintf("; not at each of them, but at a sample with seed %d (Case.Runs, Case.Seed)", t.Seed)
	}
	if t.otherProcessSkipped != "" {
		sample += "; " + t.otherProcessSkipped
	}
	return fmt.Sprintf("jobtest: %d runs with %s of a handler that makes %s and %s of its context%s",
		t.runs, count(t.interruptions, "interruption"), count(t.reports, "report"), count(t.checks, "check"), sample)
}
