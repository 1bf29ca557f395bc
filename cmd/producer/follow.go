package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// following prints what the command of a job prints, until it has ended.
type following struct {
	report  *report
	client  *client.Client
	put     client.PutResult
	unknown error // no live worker has the kind

	claimed bool // a worker has, or had, the job

	delivery, number int          // of the last line that was printed
	shown            bytes.Buffer // what was printed of the standard output
	broken           bool         // the lines are no longer those of the standard output
}

const (
	// pollLog is how often the log of a running job is read. Workers report it every 15 s.
	pollLog = 3 * time.Second

	// waitForWorker is how long a job waits until that is explained.
	waitForWorker = 3 * time.Second
)

// follow returns the outcome of the job. When ctx ends it cancels the job.
func (f *following) follow(ctx context.Context) (client.Outcome, error) {
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	type answer struct {
		client.Outcome
		err error
	}
	ended, seen := make(chan answer, 1), make(chan struct{}, 1)
	go func() {
		progress := func(j client.Job) {
			if j.Deliveries == j.Again {
				return
			}
			select {
			case seen <- struct{}{}:
			default:
			}
		}
		for outcome, err := range f.client.WaitMany(waiting, []string{f.put.ID}, client.WaitOptions{Progress: progress}) {
			ended <- answer{outcome, err}
			return
		}
	}()
	ticker, explain := time.NewTicker(pollLog), time.NewTimer(waitForWorker)
	defer ticker.Stop()
	defer explain.Stop()
	cancelled, reading := ctx.Done(), ctx // Ctrl-C does not wait for a read that is not answered
	for {
		select {
		case a := <-ended:
			if a.err != nil {
				return a.Outcome, fmt.Errorf("stopped waiting for job %s, which continues: %w", f.put.ID, a.err)
			}
			return a.Outcome, f.printRest(waiting, a.Outcome)
		case <-seen:
			f.claimed = true
		case <-explain.C:
			f.explain()
		case <-ticker.C:
			if log, err := f.client.Live(reading, f.put.ID); err == nil { // the wait reports an outage
				if err := f.print(ofThisRun(log)); err != nil {
					return client.Outcome{}, err
				}
			}
		case <-cancelled:
			cancelled, reading = nil, waiting
			if err := f.cancel(ctx); err != nil {
				return client.Outcome{}, err
			}
		}
	}
}

// explain says why no worker has claimed the job, if none is there for it.
func (f *following) explain() {
	if f.unknown != nil && !f.claimed {
		f.report.note("job %s waits: %s. Start a worker with --commands, or bin/lab up --workers 1 --commands; Ctrl-C cancels the job", f.put.ID,
			plaintext.Line(f.unknown.Error()))
	}
}

// ofThisRun returns the log of a job without the lines from before it was put again.
func ofThisRun(log client.Log) client.Log {
	if again := log.Job.Again; again > 0 {
		log.Lines = slices.DeleteFunc(log.Lines, func(l client.LogLine) bool { return l.Delivery <= again })
	}
	return log
}

// print prints the lines of a log that were not printed yet. Lines of the standard output go to
// a terminal alone: the log has no bytes that are no lines.
func (f *following) print(log client.Log) error {
	onStdout := slices.ContainsFunc(log.Lines, func(l client.LogLine) bool { return l.Source == command.Stdout })
	for _, line := range log.Lines {
		if !f.advance(&line) {
			continue
		}
		switch {
		case line.LeftOut > 0:
			if !onStdout { // otherwise most of them are lines of that, which is printed in full at the end
				f.report.note("%d lines of the log of job %s left out", line.LeftOut, f.put.ID)
			}
		case line.Source != command.Stdout:
			if !f.report.quiet {
				f.report.screen.printErr(line.Text + "\n")
			}
		case f.report.screen.shared && !f.broken && !log.Job.Status.Ended():
			f.shown.WriteString(line.Text + "\n")
			if err := f.report.screen.printOut(line.Text + "\n"); err != nil {
				return err
			}
		}
	}
	return nil
}

// advance moves to a line. It reports whether that was not printed yet, and takes what was from
// the lines that it says are left out.
func (f *following) advance(line *client.LogLine) bool {
	last := line.Number + max(line.LeftOut, 1) - 1
	if line.Delivery < f.delivery || line.Delivery == f.delivery && last <= f.number {
		return false
	}
	begunAgain := line.Delivery > f.delivery && f.delivery > 0 // the command, perhaps
	f.broken = f.broken || begunAgain || line.LeftOut > 0
	if line.LeftOut > 0 && line.Delivery == f.delivery {
		line.LeftOut = last - f.number
	}
	f.delivery, f.number = line.Delivery, last
	return true
}

// printRest prints what is left of the log and of the standard output of a job that has ended.
func (f *following) printRest(ctx context.Context, ended client.Outcome) error {
	log, err := f.client.Log(ctx, f.put.ID)
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		f.report.note("the log of job %s cannot be read: %v", f.put.ID, err)
	}
	log = ofThisRun(log)
	if err := f.print(log); err != nil {
		return err
	}
	content, err := f.stdout(ctx, ended, log)
	if err != nil {
		return fmt.Errorf("the standard output of job %s cannot be read: %w", f.put.ID, err)
	}
	defer func() { _ = content.Close() }()
	return f.printStdout(content)
}

// stdout returns the standard output: the output of that name, or the result of a job that is
// done, or else what the log has of it.
func (f *following) stdout(ctx context.Context, ended client.Outcome, log client.Log) (io.ReadCloser, error) {
	if ended.Job.OutputFiles > 0 {
		all, err := f.client.Outputs(ctx, f.put.ID)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if o.Path == command.Stdout {
				return f.client.OpenOutput(ctx, o)
			}
		}
	}
	if ended.Err == nil {
		return io.NopCloser(bytes.NewReader(ended.Result)), nil
	}
	var text strings.Builder
	for _, line := range log.Lines {
		if line.Source == command.Stdout {
			text.WriteString(line.Text + "\n")
		}
	}
	return io.NopCloser(strings.NewReader(text.String())), nil
}

// printStdout prints a standard output, less what was printed of it before. If that was something
// else, it begins with the first line that differs.
func (f *following) printStdout(content io.Reader) error {
	begin := make([]byte, f.shown.Len())
	n, err := io.ReadFull(content, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	same := 0
	for same < n && begin[same] == f.shown.Bytes()[same] {
		same++
	}
	if same < f.shown.Len() {
		same = bytes.LastIndexByte(begin[:same], '\n') + 1
		f.report.note("the command printed this again after an interruption, from another line on:")
	}
	out := f.report.screen.out
	if _, err := out.Write(begin[same:n]); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}
