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

// errEviction is what led to the stop of a run that jobtest stops.
var errEviction = errors.New("jobtest takes this VM away")

// run is one call of a handler.
type run struct {
	c      *Case
	number int     // in its job, from 1
	from   *state  // what it is resumed from, nil on a fresh start
	moment *moment // when it ends early, nil for never
	places ranks   // of the states of an uninterrupted run; nil while that is unknown

	job  *job.Job
	stop context.CancelCauseFunc
	open atomic.Int64 // streams of the recorded state that are open
	done chan struct{}

	// For the goroutine that reports, and whoever waited for done.
	held    *job.Progress // the last state that was reported, as it was given
	current *state        // and a copy of it
	learned ranks         // of the states so far, where places is nil
	repeats bool          // a state came again after another
	marked  *state        // the state as of report moment.recorded
	highest progress

	mu      sync.Mutex // guards what follows
	reports int
	looks   int
	stopped bool // the context was cancelled
	killed  bool // no report counts any more
	over    bool // the handler has returned or was given up: what its goroutines do counts no more
	late    int  // states that were reported after the stop
	fault   *fault

	// Set before done is closed.
	result   []byte
	err      error
	returned bool // and did not end its goroutine
}

// progress is how far a run has come.
type progress struct {
	fraction float64
	rank     int
}

// call calls the handler and waits until it returns, is killed or has used up its
// grace.
func (r *run) call(ctx context.Context, h job.Handler) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer r.leave()
	r.stop, r.done = cancel, make(chan struct{})
	r.job = job.New(job.Spec{ID: r.c.ID, Kind: r.c.Kind, Payload: bytes.Clone(r.c.Payload), Attempt: 1, Deadline: r.c.Deadline}, r.from.saved(&r.open))
	r.job.OnReport(r.onReport)
	r.marked, r.learned = r.from, ranks{}
	if r.from != nil {
		r.highest = progress{r.from.fraction, r.from.rank}
	}
	if r.moment != nil && r.moment.place == atStart {
		r.interrupt()
	}
	go func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(runLabel, r.label())))
		r.handle(&watched{ctx, r.onLook}, h)
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
			return // its goroutine is left behind, as by a worker
		}
	}
	r.close()
}

// leave ends the counting of what the run does.
func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// handle runs the handler in a goroutine of its own.
func (r *run) handle(ctx context.Context, h job.Handler) {
	defer close(r.done)
	defer func() {
		switch p := recover(); {
		case p != nil:
			r.fail(&fault{what: "the handler panicked", detail: fmt.Sprintf("%v\n%s", p, debug.Stack())})
		case !r.returned && !r.wasKilled():
			r.fail(&fault{what: "the handler ended its goroutine", detail: "it called runtime.Goexit, or FailNow of a test, instead of returning"})
		}
	}()
	r.result, r.err = h.Run(ctx, r.job)
	r.returned = true
}

// close is what a worker does after the handler has returned.
func (r *run) close() {
	defer r.job.Close()
	if r.wasKilled() || !r.returned {
		return
	}
	r.stillThere()
	if n := r.open.Load(); n > 0 {
		r.fail(&fault{what: "the recorded state was not closed", detail: count(int(n), "stream") + " from OpenSaved still open after the handler has returned", hint: "A worker saves no new state until they are closed."})
	}
	if r.err == nil && len(r.result) > job.MaxResult {
		r.fail(&fault{what: "the result is too large", detail: fmt.Sprintf("%d bytes; at most %d are kept", len(r.result), job.MaxResult), hint: "Put it where it belongs, and return its name."})
	}
	if m := r.moment; m != nil && m.place == atEnd && r.err == nil {
		r.die()
	}
}

// watched is a context that tells when somebody looks at it.
type watched struct {
	context.Context
	look func()
}

// Done counts as a look: contexts that are derived from this one call it too.
func (w *watched) Done() <-chan struct{} { w.look(); return w.Context.Done() }

// Err counts as a look.
func (w *watched) Err() error { w.look(); return w.Context.Err() }

func (r *run) onLook() {
	r.mu.Lock()
	if !r.stopped && !r.over {
		r.looks++
	}
	now := r.due(atLook, r.looks) && !r.over
	r.mu.Unlock()
	if now {
		r.interrupt()
	}
}

// due reports whether the run is to be interrupted here.
func (r *run) due(at place, n int) bool {
	return !r.stopped && r.moment != nil && r.moment.place == at && r.moment.n == n
}

// interrupt stops the run with notice.
func (r *run) interrupt() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.stop(&job.Stop{Reason: job.Evicted, Deadline: time.Now().Add(r.c.Grace), Err: errEviction})
}

// die is the end without notice: nothing that comes later counts.
func (r *run) die() {
	r.mu.Lock()
	r.killed = true
	r.mu.Unlock()
	r.interrupt()
}

func (r *run) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// onReport is called within each report of the handler.
func (r *run) onReport(p *job.Progress) {
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
	now := r.due(atReport, n)
	r.mu.Unlock()

	r.take(p, n, stopped)
	switch {
	case now && r.moment.kill:
		r.die()
		runtime.Goexit()
	case now:
		r.interrupt()
	}
}

// fail keeps the first fault of the run.
func (r *run) fail(f *fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = f
	}
}

// broke returns the first fault of the run, or nil.
func (r *run) broke() *fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// showsItsEnd reports whether a run that was stopped and returned no error showed
// that the job is done; package job has the rule. Otherwise a worker resumes it.
func (r *run) showsItsEnd() bool {
	latest := r.job.Latest()
	return r.result != nil || latest != nil && latest.Fraction >= 1
}

// recorded is the state that a worker would have recorded when the run ended.
func (r *run) recorded() *state {
	switch {
	case r.killed:
		return r.marked
	case r.current != nil:
		return r.current
	}
	return r.from
}
