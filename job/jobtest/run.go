package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/job"
)

// errEviction is the cause of the stops by jobtest.
var errEviction = errors.New("jobtest evicts this VM")

// handlerCall is one call of a handler.
type handlerCall struct {
	c      *Case
	number int         // in its job, from 1
	from   *savedState // its starting state, nil on a fresh start
	moment *moment     // when it ends early, nil for never
	places ranks       // of the states of an uninterrupted run; nil while that is unknown

	job  job.Control
	stop context.CancelCauseFunc
	open atomic.Int64 // streams of the recorded state that are open
	done chan struct{}

	// For the goroutine that reports, and for others after done is closed.
	held    *job.Progress // the last report with a state
	current *savedState   // a copy of its state
	learned ranks         // of the states so far, where places is nil
	repeats bool          // a state was reported again after another
	marked  *savedState   // the state as of report moment.recorded
	highest progress

	mu      sync.Mutex // guards what follows
	reports int
	checks  int
	stopped bool // the context was cancelled
	killed  bool // no further report counts
	over    bool // the handler has returned or was abandoned: later acts of its goroutines do not count
	late    int  // states that were reported after the stop
	fault   *defect

	// Set before done is closed.
	result   []byte
	err      error
	returned bool // false if the handler ended its goroutine
}

// progress is how far a run has come.
type progress struct {
	fraction float64
	rank     int
}

// call calls the handler and waits until it returns, is killed or exceeds its grace.
func (r *handlerCall) call(ctx context.Context, h job.Handler) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer r.endCounting()
	r.stop, r.done = cancel, make(chan struct{})
	r.job = job.ControlOf(job.New(job.Spec{ID: r.c.ID, Kind: r.c.Kind, Payload: bytes.Clone(r.c.Payload), Attempt: 1, Deadline: r.c.Deadline},
		r.from.saved(&r.open)))
	r.job.OnReport(r.onReport)
	r.job.OnPut(r.onPut)
	r.job.OnOutputs(r.c.Effects)
	r.marked, r.learned = r.from, ranks{}
	if r.from != nil {
		r.highest = progress{r.from.fraction, r.from.rank}
	}
	if r.moment != nil && r.moment.place == atStart {
		r.interrupt()
	}
	go func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(runLabel, r.label())))
		r.handle(&watched{ctx, r.onCheck}, h)
	}()
	select {
	case <-r.done:
	case <-ctx.Done():
		grace := time.NewTimer(r.c.Grace)
		defer grace.Stop()
		select {
		case <-r.done:
		case <-grace.C:
			r.fail(ignoresContext(fmt.Sprintf("it had not returned %s after its context was cancelled", r.c.Grace)))
			return // its goroutine is abandoned, as by a worker
		}
	}
	r.close()
}

// onPut counts a follow-up job as an effect: it must be put by every job, and its name
// must stand for the same work each time.
func (r *handlerCall) onPut(ctx context.Context, id string, f job.FollowUp) error {
	if err := ctx.Err(); err != nil {
		return err // as a call to storage
	}
	r.c.Effects.Apply(id, fmt.Sprintf("follow-up job %q of kind %s, payload %q", f.Name, f.Kind, f.Payload))
	return nil
}

// endCounting ends the counting of the run's calls.
func (r *handlerCall) endCounting() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// handle runs the handler in a goroutine of its own.
func (r *handlerCall) handle(ctx context.Context, h job.Handler) {
	defer close(r.done)
	defer func() {
		switch p := recover(); {
		case p != nil:
			r.fail(&defect{what: "the handler panicked", detail: fmt.Sprintf("%v\n%s", p, debug.Stack())})
		case !r.returned && !r.wasKilled():
			r.fail(&defect{what: "the handler ended its goroutine", detail: "it called runtime.Goexit, or FailNow of a test, instead of returning"})
		}
	}()
	r.result, r.err = h.Run(ctx, r.job.Job)
	r.returned = true
}

// close does the steps of a worker after the handler has returned.
func (r *handlerCall) close() {
	defer r.job.Close()
	if r.wasKilled() || !r.returned {
		return
	}
	r.checkUnchanged()
	if n := r.open.Load(); n > 0 {
		r.fail(&defect{what: "the recorded state was not closed", detail: count(int(n), "stream") +
			" from OpenSaved still open after the handler returned", hint: "A worker saves no new state until they are closed."})
	}
	if r.err == nil && len(r.result) > job.MaxResult {
		r.fail(&defect{what: "the result is too large", detail: fmt.Sprintf("%d bytes; at most %d are kept", len(r.result), job.MaxResult),
			hint: "Write it to a blob, and return its name."})
	}
	if m := r.moment; m != nil && m.place == atEnd && r.err == nil {
		r.kill()
	}
}

// watched is a context that reports each check of it.
type watched struct {
	context.Context
	onCheck func()
}

// Done counts as a check: contexts that are derived from this one call it too.
func (w *watched) Done() <-chan struct{} { w.onCheck(); return w.Context.Done() }

// Err counts as a check.
func (w *watched) Err() error { w.onCheck(); return w.Context.Err() }

func (r *handlerCall) onCheck() {
	r.mu.Lock()
	if !r.stopped && !r.over {
		r.checks++
	}
	now := r.isDue(atCheck, r.checks) && !r.over
	r.mu.Unlock()
	if now {
		r.interrupt()
	}
}

// isDue reports whether the run has to be interrupted here.
func (r *handlerCall) isDue(at place, n int) bool {
	return !r.stopped && r.moment != nil && r.moment.place == at && r.moment.n == n
}

// interrupt cancels the run's context, with notice.
func (r *handlerCall) interrupt() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.stop(&job.Stop{Reason: job.Evicted, Deadline: time.Now().Add(r.c.Grace), Err: errEviction})
}

// kill ends the run without notice: nothing that it does later counts.
func (r *handlerCall) kill() {
	r.mu.Lock()
	r.killed = true
	r.mu.Unlock()
	r.interrupt()
}

func (r *handlerCall) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// onReport is called within each report of the handler.
func (r *handlerCall) onReport(p *job.Progress) {
	if r.wasKilled() {
		runtime.Goexit()
	}
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	r.reports++
	n, stopped := r.reports, r.stopped
	now := r.isDue(atReport, n)
	r.mu.Unlock()

	r.onReportedState(p, n, stopped)
	switch {
	case now && r.moment.kill:
		r.kill()
		runtime.Goexit()
	case now:
		r.interrupt()
	}
}

// fail keeps the first fault of the run.
func (r *handlerCall) fail(f *defect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = f
	}
}

// firstFault returns the first fault of the run, or nil.
func (r *handlerCall) firstFault() *defect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// provesItsEnd reports whether a run that was stopped and returned no error showed
// that the job is done; package job has the rule. Otherwise a worker resumes it.
func (r *handlerCall) provesItsEnd() bool {
	latest := r.job.Latest()
	return r.result != nil || latest != nil && latest.Fraction >= 1
}

// recorded returns the state that a worker would have saved at the end of the run.
func (r *handlerCall) recorded() *savedState {
	switch {
	case r.killed:
		return r.marked
	case r.current != nil:
		return r.current
	}
	return r.from
}

// onReportedState checks report number n and keeps a copy of its state. late means that
// the context was cancelled before.
func (r *handlerCall) onReportedState(p *job.Progress, n int, late bool) {
	r.checkUnchanged()
	r.checkFraction(p, n)
	if p.HasState() && (r.held == nil || !p.SameState(r.held)) {
		r.saveCopy(p, n)
		if late {
			r.countLate()
		}
	}
	if r.moment != nil && r.moment.recorded >= n && r.current != nil {
		r.marked = r.current // up to the report that the moment names
	}
}

// saveCopy keeps a copy of a state that was not reported before.
func (r *handlerCall) saveCopy(p *job.Progress, n int) {
	s, err := capture(p)
	switch {
	case err != nil:
		r.fail(&defect{what: "a state cannot be recorded", detail: fmt.Sprintf("report %d: %v", n, err)})
		return
	case !s.streamed && len(s.bytes) > job.MaxState:
		r.fail(&defect{what: "a state is too large", detail: fmt.Sprintf("report %d has a state of %d bytes; at most %d are allowed in one piece",
			n, len(s.bytes), job.MaxState), hint: "Report it as a stream."})
	}
	s.source = fmt.Sprintf("report %d of run %d", n, r.number)
	r.held, r.current = p, s
	if r.places == nil {
		r.repeats = r.learned.add(s) || r.repeats
	}
	r.checkOrder(s, n)
}

// checkUnchanged checks that the last state has not changed since it was reported: the
// worker may read it until there is a later one.
func (r *handlerCall) checkUnchanged() {
	if r.held == nil {
		return
	}
	now, err := capture(r.held)
	switch {
	case err != nil:
		r.fail(&defect{what: "a state was changed after it was reported",
			detail: fmt.Sprintf("the stream of %s does not open or read any more: %v", r.current.source, err),
			hint:   "Keep what a stream reads until a later state was reported; remove it in a Cleanup."})
	case !bytes.Equal(now.bytes, r.current.bytes):
		r.fail(&defect{what: "a state was changed after it was reported", detail: fmt.Sprintf("the state of %s was %s and became %s",
			r.current.source, show(r.current.bytes), show(now.bytes)), hint: "The worker may read it until there is a later one: report new " +
			"memory each time, or a file that is not written any more."})
	}
}

func (r *handlerCall) checkFraction(p *job.Progress, n int) {
	switch {
	case !(p.Fraction >= 0 && p.Fraction <= 1): // also NaN
		r.fail(&defect{what: "a fraction is out of range", detail: fmt.Sprintf("report %d has fraction %v; it is a part of 1", n, p.Fraction)})
	case p.Fraction == 0: // not given
	case p.Fraction < r.highest.fraction:
		r.fail(&defect{what: "progress goes backwards", detail: fmt.Sprintf("report %d has fraction %.3g after %.3g", n, p.Fraction,
			r.highest.fraction), hint: "Continue from the recorded state: j.Saved()."})
	default:
		r.highest.fraction = p.Fraction
	}
}

// checkOrder fails on a state that is earlier than one the job has already reached.
func (r *handlerCall) checkOrder(s *savedState, n int) {
	s.rank = r.places[s.sum()]
	switch {
	case s.rank == 0: // unknown
	case s.rank < r.highest.rank:
		r.fail(&defect{what: "progress goes backwards", detail: fmt.Sprintf("report %d has the state %s, which is state %d of an uninterrupted "+
			"run; the job had come to state %d", n, show(s.bytes), s.rank, r.highest.rank), hint: "Continue from the recorded state: j.Saved()."})
	default:
		r.highest.rank = s.rank
	}
}

// countLate counts a state that was reported after the stop.
func (r *handlerCall) countLate() {
	r.mu.Lock()
	r.late++
	late := r.late
	r.mu.Unlock()
	if late > r.c.LateReports {
		r.fail(ignoresContext(fmt.Sprintf("it reported %s after its context was cancelled; %d allowed (LateReports)", count(late, "more state"),
			r.c.LateReports)))
	}
}

func ignoresContext(detail string) *defect {
	return &defect{what: "the handler ignores its context", detail: detail,
		hint: "Check ctx.Err() between two steps, and pass ctx to whatever waits."}
}
