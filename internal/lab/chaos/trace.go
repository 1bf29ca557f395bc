package chaos

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// traceFlag is followed by the file to which the handler of a worker writes its own
// trace. The ledgers in the records are compared with it. A written line stays, however
// the process ends.
const traceFlag = "--chaos-trace="

// trace is the trace of one worker's handler; without a file it keeps nothing.
type trace struct{ file *os.File }

// takeTraceFlag opens the file that the command line names, and removes the flag from it.
func takeTraceFlag(args []string) (rest []string, t trace, err error) {
	for _, arg := range args {
		name, found := strings.CutPrefix(arg, traceFlag)
		if !found {
			rest = append(rest, arg)
			continue
		}
		if t.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, t, err
		}
	}
	return rest, t, nil
}

// Events of a trace.
const (
	traceBegan = 'B' // the handler was called, with a state of so many steps
	traceStep  = 'S' // it reported so many steps
	traceEnded = 'E' // it returned, with the result if the number is 1
)

// add writes that an event happens now.
func (t trace) add(event rune, job string, n int) { t.addAt(event, job, n, time.Now()) }

// addAt writes one line, in one call.
func (t trace) addAt(event rune, job string, n int, at time.Time) {
	if t.file != nil {
		_, _ = fmt.Fprintf(t.file, "%c %s %d %d\n", event, job, n, at.UnixNano()) // a line that is missing shows in the comparison
	}
}

// readTrace returns the runs of a worker's trace by job. died is when the worker was killed;
// zero if it was not.
func readTrace(name string, died time.Time, runs map[string][]oracle.Run) error {
	file, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil // it ran no job
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	active := map[string]*oracle.Run{}
	end := func(job string, at time.Time) {
		r := active[job]
		delete(active, job)
		if r.Ended = at; !died.IsZero() && died.Before(at) {
			r.Ended, r.Finished = died, false
		}
		runs[job] = append(runs[job], *r)
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var event rune
		var job string
		var n int
		var nanos int64
		if _, err := fmt.Sscanf(lines.Text(), "%c %s %d %d", &event, &job, &n, &nanos); err != nil {
			continue // cut off by the kill
		}
		at := time.Unix(0, nanos)
		switch r := active[job]; {
		case event == traceBegan:
			active[job] = &oracle.Run{Began: at, From: n}
		case r == nil:
			return fmt.Errorf("%s: %q before the run began", name, lines.Text())
		case event == traceStep:
			r.Steps = append(r.Steps, at)
		default:
			r.Finished = n == 1
			end(job, at)
		}
	}
	for job := range active {
		end(job, died)
	}
	return lines.Err()
}

// effort compares the ledgers of jobs that are done with the traces of their handlers.
type effort struct {
	jobs                     int
	did                      oracle.Work
	useful, redone, overhead time.Duration // by the ledgers
	evictions, exits         int
	killed                   int // runs of handlers that ended with their workers

	// unrecorded are runs that ended with their worker before it had written the job's
	// record, and unrecordedTime their time: no ledger knows them.
	unrecorded     int
	unrecordedTime time.Duration
}

// traceOf is the file of a worker's trace.
func (r *chaos) traceOf(vm string) string { return filepath.Join(r.folder, vm+".trace") }

// compare reads the records and the traces. Jobs that are programs have no trace.
func (r *chaos) compare(ctx context.Context) (e effort, err error) {
	runs, unrecorded, killed := map[string][]oracle.Run{}, map[string][]oracle.Run{}, map[string]int{}
	for n := range r.stage.Started() {
		name := lab.VMName(n + 1)
		own, died := map[string][]oracle.Run{}, r.recorder.DiedAt(name)
		if err := readTrace(r.traceOf(name), died, own); err != nil {
			return e, err
		}
		for job, ran := range own {
			runs[job] = append(runs[job], ran...)
			last := ran[len(ran)-1]
			if died.IsZero() || !last.Ended.Equal(died) {
				continue
			}
			killed[job]++
			if !r.recorder.Wrote(name, job) {
				unrecorded[job] = append(unrecorded[job], last)
			}
		}
	}
	for record, err := range r.stores.Records.List(ctx, "") {
		if err != nil {
			return e, err
		}
		if record.Kind != stepsKind || record.Status != checkpoint.Done {
			continue
		}
		l := record.Spent()
		e.jobs, e.killed = e.jobs+1, e.killed+killed[record.ID]
		e.did.Add(oracle.Measure(runs[record.ID]))
		e.useful, e.redone, e.overhead = e.useful+l.Useful, e.redone+l.Redone, e.overhead+l.Overhead
		e.evictions, e.exits = e.evictions+l.Evictions, e.exits+l.Exits
		for _, run := range unrecorded[record.ID] {
			e.unrecorded, e.unrecordedTime = e.unrecorded+1, e.unrecordedTime+run.Ended.Sub(run.Began)
		}
	}
	return e, nil
}

// rows are lines of the report.
func (e effort) rows(row func(label, format string, args ...any)) {
	both := func(label string, ledger, own time.Duration) {
		off := 0.0
		if own > 0 {
			off = 100 * float64(ledger-own) / float64(own)
		}
		row(label, "%.1f s, %.1f s, %+.2f %%", ledger.Seconds(), own.Seconds(), off)
	}
	both("handlers ran: ledgers, own traces, apart", e.useful+e.redone, e.did.Ran)
	both("  useful", e.useful, e.did.Useful)
	both("  lost", e.redone, e.did.Lost())
	row("  of it before the first write of a record", "%.1f s, %d runs", e.unrecordedTime.Seconds(), e.unrecorded)
	row("  overhead, evictions, deaths, by ledgers", "%.1f s, %d, %d, of %d jobs", e.overhead.Seconds(), e.evictions, e.exits, e.jobs)
}
