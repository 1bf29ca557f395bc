package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// report prints what happens to the jobs. With JSON, each change of a job's status is
// a line on standard output, and the summary is the last line. Without JSON, ids and
// results go to standard output, and messages for people to standard error.
type report struct {
	screen              *screen
	json, quiet, dryRun bool

	// reportSkipped makes the report mention each job that was skipped because of its
	// record. takeOver says that running jobs that are put were taken over.
	reportSkipped, takeOver bool

	began time.Time
	sum   summary
	late  int // jobs that cannot meet their deadlines
}

// newReport returns the report of a run with those flags.
func newReport(f *flags, s *screen) *report {
	return &report{
		screen: s, json: f.WantsJSON(), quiet: f.Quiet, dryRun: f.DryRun, reportSkipped: f.TakeOver, takeOver: f.TakeOver,
		began: time.Now(), sum: summary{DryRun: f.DryRun},
	}
}

// note prints a remark for people.
func (r *report) note(format string, args ...any) {
	if !r.quiet {
		r.screen.printErr(plaintext.Message(fmt.Sprintf(format, args...)) + "\n")
	}
}

// put reports the outcome of a put.
func (r *report) put(result client.PutResult) error {
	switch {
	case result.Err != nil:
		return r.failed(result)
	case result.Skipped:
		return r.skipped(result)
	}
	return r.enqueued(result)
}

// enqueued reports that a job is on the queue, or in a dry run would be.
func (r *report) enqueued(j client.PutResult) error {
	found := j.Found
	r.screen.step()
	if !found.Ended() { // one that has ended runs again
		r.sum.Found.count(found)
	}
	r.warn(j)
	switch {
	case r.json:
		return r.printLine(enqueuedLine(j, r.dryRun))
	case r.dryRun:
		return r.screen.printOut(r.plan(j))
	case found.Ended():
		r.note("job %s was %s; it runs again, from scratch", j.ID, found)
	case found == client.StatusRunning && r.takeOver:
		r.note("job %s was running; the next worker may start it now", j.ID)
	case found != "" && !r.takeOver:
		r.note("job %s is already %s; this message resumes it if the earlier one was lost, and has no effect otherwise", j.ID, found)
	}
	return r.screen.printOut(j.ID + "\n")
}

// namedLate is how many jobs are named that cannot meet their deadlines; the summary
// counts all of them.
const namedLate = 3

// warn reports that a job cannot meet its deadline.
func (r *report) warn(j client.PutResult) {
	if j.Warning == "" {
		return
	}
	r.late++
	if !r.json && r.late <= namedLate {
		r.note("job %s: %s; workers run it all the same", j.ID, j.Warning)
	}
}

// lateText is the summary's text on jobs that cannot meet their deadlines.
func (r *report) lateText() string {
	if r.late == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d with a deadline out of reach)", r.late)
}

// plan returns the line of a dry run: the job that would be enqueued, in columns.
func (r *report) plan(j client.PutResult) string {
	found := j.Found
	id := "(a new id)"
	if !j.NewID {
		id = j.ID
	}
	text := fmt.Sprintf("%s\t%s\t%d B", id, j.Kind, j.PayloadSize)
	if j.Delay > 0 {
		text += fmt.Sprintf("\tin %s", j.Delay)
	}
	switch {
	case found.Ended():
		text += "\tagain, it was " + string(found)
	case found == client.StatusRunning && r.takeOver:
		text += "\ttaken over"
	case found != "" && !r.takeOver:
		text += "\talready " + string(found)
	}
	return text + "\n"
}

// skipped reports that a job was not put because of its record.
func (r *report) skipped(j client.PutResult) error {
	found := j.Found
	r.screen.step()
	r.sum.Found.count(found)
	if r.json {
		return r.printLine(line{ID: j.ID, Status: "skipped", Where: j.Where, Record: found, DryRun: r.dryRun})
	}
	switch {
	case r.sum.Found != nil && found != client.StatusDone:
		r.screen.printErr(fmt.Sprintf("job %s is %s; it is not put again\n", j.ID, found))
	case r.reportSkipped:
		r.note("job %s is %s; it is skipped", j.ID, found)
	}
	return nil
}

// unchecked reports why ids cannot be checked.
func (r *report) unchecked(err error) {
	r.note("%s", actions.IDsUnchecked(azure.Explain(err)))
}

// unknownKind reports a kind that no live worker has.
func (r *report) unknownKind(err error) { r.note("warning: %s", plaintext.Line(err.Error())) }

// failed reports why a job was not enqueued.
func (r *report) failed(bad client.PutResult) error {
	r.screen.step()
	if r.json {
		return r.printLine(line{ID: bad.ID, Status: "failed", Where: bad.Where, Error: azure.Explain(bad.Err), DryRun: r.dryRun})
	}
	r.screen.printErr(plaintext.Line(azure.Explain(&client.JobError{Where: bad.Where, Err: bad.Err})) + "\n")
	return nil
}

// ended reports the outcome of a job that was waited for.
func (r *report) ended(o client.Outcome) error {
	r.screen.step()
	r.sum.Waited.count(o)
	id := o.Job.ID
	switch ended, ok := errors.AsType[*client.EndedError](o.Err); {
	case r.json:
		return r.printLine(endedLine(o))
	case ok:
		r.screen.printErr(fmt.Sprintf("job %s is %s: %s\n", id, o.Job.Status, plaintext.Line(reason(ended))))
	case o.Err != nil:
		r.screen.printErr(fmt.Sprintf("job %s: %s\n", id, plaintext.Line(azure.Explain(o.Err))))
	default:
		return r.screen.printOut(fmt.Sprintf("%s\t%s\n", id, cli.ResultField(o.Result, r.screen.shared)))
	}
	return nil
}

// reason returns why a job ended without a result. It is never empty.
func reason(e *client.EndedError) string {
	if e.Job.Reason == "" {
		return "no reason given"
	}
	return e.Job.Reason
}
