package jobtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spotworker/spotworker/job"
)

const (
	// strangeVersion is the version of a state that no handler has reported.
	strangeVersion = 1<<30 + 7

	// leakTimeout is how long goroutines may take to end after the handler has returned
	// and its context has ended.
	leakTimeout = time.Second

	// leakRuns is how many runs in a row must each leave a goroutine. The first run alone
	// may leave a goroutine that serves all runs, such as an idle connection's.
	leakRuns = 3
)

// unknownVersion gives the handler a state of a version that it does not know, as
// during an update a worker of the old program gets from the new one. The handler must
// return an error, and change neither the state nor the job.
func (t *trial) unknownVersion(ctx context.Context) error {
	if t.final == nil {
		return nil
	}
	s, strange := t.begin(), *t.final
	strange.version, strange.fraction = strangeVersion, 0
	r := t.call(ctx, s, &strange, nil, ranks{})
	f := &defect{hint: "Begin with j.CheckVersion and the versions that the handler knows, 0 if it gives none, and return its error " +
		"as it is. During an update workers of two versions run side by side: an old one must leave the states of a new one alone."}
	given := fmt.Sprintf("given a state of version %d, which it never reported, it ", strangeVersion)
	switch {
	case r.current != nil:
		f.what, f.detail = "a state of an unknown version was replaced", given+"reported the state "+r.current.String()
	case r.firstFault() != nil:
		f = r.firstFault()
	case r.err == nil:
		f.what, f.detail = "a state of an unknown version was read", given+r.end()
	case job.IsPermanent(r.err):
		f.what, f.detail = "a state of an unknown version ended the job", given+"returned a permanent error: "+r.err.Error()
	default:
		return nil
	}
	return s.fail(f)
}

// laterRuns is the largest number of runs after the planned interruptions.
func (t *trial) laterRuns() int {
	runs := 1 // unknownVersion
	if t.testsProcess() {
		runs += 2*leakRuns + 1
	}
	return runs
}

// testsProcess reports whether there are enough runs for sameProcess.
func (t *trial) testsProcess() bool { return t.Runs >= 2*leastRuns }

// sameProcess finds state that survives a run in its process, which a restarted worker
// does not have.
func (t *trial) sameProcess(ctx context.Context) error {
	if !t.testsProcess() {
		return nil
	}
	if err := t.otherProcess(ctx); err != nil {
		return err
	}
	return t.oneHandler(ctx)
}

// oneHandler calls one handler for several jobs in a row, as a worker does. Their
// results must be the same, and no goroutine may be left over.
func (t *trial) oneHandler(ctx context.Context) error {
	h := t.newHandler()
	newHandler := t.newHandler
	defer func() { t.newHandler = newHandler }()
	t.newHandler = func() job.Handler { return h }
	stop := &moment{place: atCheck, n: (t.checks + 1) / 2}
	if t.checks == 0 {
		stop = &moment{place: atReport, n: (t.reports + 1) / 2}
	}
	for _, m := range []*moment{nil, stop} {
		leaks := 0
		for i := range leakRuns {
			s := t.begin()
			r := t.call(ctx, s, nil, m, t.places)
			if f := outcome(r); f != nil {
				f.what = "a handler that was called before fails: " + f.what
				return s.fail(f)
			}
			if m == nil && r.err == nil && !t.Same(t.result, r.result) {
				return s.failWanting(&defect{
					what: "a handler's second job differs", detail: fmt.Sprintf("got %s, want %s", show(r.result), show(t.result)),
					hint: "A worker makes one handler and calls it for all jobs, many at once: keep nothing of a job in its fields.",
				}, t.result)
			}
			left := r.leftBehind()
			if left == "" && (i > 0 || m != nil) {
				break
			}
			if left == "" {
				continue
			}
			if leaks++; leaks == leakRuns {
				return s.fail(&defect{
					what: "goroutines are left over", detail: fmt.Sprintf("each of %d jobs left one that was still there %s after the handler had "+
						"returned and its context had ended, the last in %s", leakRuns, leakTimeout, left),
					hint: "A worker runs for days: wait for the goroutines of a run before it returns, and give each a way to end, such as a select " +
						"with ctx.Done() where it sends.",
				})
			}
		}
	}
	return nil
}

// runLabel is the profiler label of a run's goroutines. Goroutines that they start
// inherit it.
const runLabel = "jobtest_run"

func (r *handlerCall) label() string { return fmt.Sprintf("%p", r) }

// leftBehind returns the function of a goroutine of the run that does not end, or "".
func (r *handlerCall) leftBehind() string {
	where := r.goroutine()
	for wait := time.Millisecond; where != "" && wait < leakTimeout; wait *= 2 {
		time.Sleep(wait)
		where = r.goroutine()
	}
	return where
}

// goroutine returns the function of one of the run's goroutines, or "" if there is
// none. The profile has a paragraph for each stack, with its labels.
func (r *handlerCall) goroutine() string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return ""
	}
	label, ours := fmt.Sprintf("%q:%q", runLabel, r.label()), false
	where := ""
	for lines := bufio.NewScanner(&profile); lines.Scan(); {
		switch fields := strings.Fields(lines.Text()); {
		case len(fields) == 0 && ours && where != "":
			return where
		case len(fields) == 0:
			ours = false
		case fields[0] == "#" && len(fields) > 1 && fields[1] == "labels:":
			ours = strings.Contains(lines.Text(), label)
		case ours && fields[0] == "#" && len(fields) == 4:
			where = fields[2] + " " + fields[3] // the outermost function
		}
	}
	return where
}
