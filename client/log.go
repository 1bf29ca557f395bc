package client

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/joblog"
)

// Log is what is kept of what a job printed and logged itself: the output of its program
// (docs/process.md), and what its handler logged with job.Logger. It has the lines up to
// the job's last checkpoint, also if its VM is gone.
type Log struct {
	// Job is the job's record.
	Job Job

	// Lines are ordered by delivery and number.
	Lines []LogLine
}

// LogLine is a line of a job's log, or says that lines are missing.
type LogLine struct {
	// Delivery is the job's delivery that logged the line, from 1, and Worker the worker
	// that had it. Delivery is 0 for deliveries of which nothing is kept.
	Delivery int
	Worker   string

	// Number counts the lines of a delivery from 1.
	Number int

	// LeftOut is how many lines are missing here; then the fields below are zero, and
	// Number is that of the first missing one. It is 0 for a line.
	LeftOut int

	// At is when the line was logged, by the worker's clock.
	At time.Time

	// Source is stdout, stderr, or the level of a handler's line, in lower case.
	Source string

	// Text is the line without its end. It may have any bytes: it comes from the job.
	Text string
}

const (
	// logDelay is how long after a job's record its log may be written, which is longer
	// than its end.
	logDelay = 10 * time.Second

	// logPoll is how often it is read again during that time.
	logPoll = 500 * time.Millisecond
)

// Log returns a job's log, in one call, or two if it is longer than a KiB. The error is
// [ErrNotFound] if the job has no record. A job that logged nothing, or whose workers
// keep no logs, has no lines.
func (c *Client) Log(ctx context.Context, id string) (Log, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return Log{}, err
	}
	end := joblog.Parse([]byte(r.Log))
	if end.Whole() && r.Status != checkpoint.Cancelled { // the last lines of a cancelled job are in the blob
		return logOf(r, end), nil
	}
	for waited := time.Duration(0); ; waited += logPoll {
		stored, err := c.stores.Logs.Read(ctx, r.ID, r.CreatedAt)
		if err != nil {
			return Log{}, c.readable(err, toRead)
		}
		// A worker writes the record first. What lies between may be on its way.
		if age := r.ReadAt.Sub(r.ModifiedAt); !stored.LacksBefore(end) || age+waited >= logDelay {
			return logOf(r, joblog.Merge(stored, end)), nil
		}
		select {
		case <-time.After(logPoll):
		case <-ctx.Done():
			return Log{}, context.Cause(ctx)
		}
	}
}

// LogEnd returns the last lines of a job's log, as far as the job's record has them, in
// one call.
func (c *Client) LogEnd(ctx context.Context, id string) (Log, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return Log{}, err
	}
	return logOf(r, joblog.Parse([]byte(r.Log))), nil
}

// logOf returns the lines of a document.
func logOf(r checkpoint.Record, d joblog.Document) Log {
	l := Log{Job: jobOf(r)}
	if d.Dropped > 0 {
		l.Lines = append(l.Lines, LogLine{LeftOut: d.Dropped})
	}
	for _, s := range d.Sections {
		line := LogLine{Delivery: s.Generation, Worker: s.Worker, Number: 1}
		gap := func(to int) {
			if missing := line; to > line.Number {
				missing.LeftOut = to - line.Number
				l.Lines = append(l.Lines, missing)
			}
		}
		for _, stored := range s.Lines {
			gap(stored.Number)
			source, after, text := stored.Decode()
			line.Number = stored.Number
			full := line
			full.At, full.Source, full.Text = s.Began.Add(after), source, text
			l.Lines = append(l.Lines, full)
			line.Number++
		}
		gap(s.Count + 1)
	}
	return l
}
