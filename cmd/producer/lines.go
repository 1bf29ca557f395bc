package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
)

// linesCommand puts the jobs of a file.
type linesCommand struct {
	File     string `arg:"" optional:"" default:"-" help:"File of JSON lines; - or nothing is standard input." placeholder:"FILE"`
	Check    bool   `help:"${about_lines_check}" default:"true" negatable:"" env:"-"`
	Kind     string `help:"Kind of the jobs of --commands." default:"command" placeholder:"KIND" env:"-"`
	Commands bool   `help:"${about_lines_commands}" env:"-"`
	Strict   bool   `help:"Check all lines first, and put nothing when one is bad." env:"-"`
}

// Help is shown by lines --help.
func (*linesCommand) Help() string {
	return `Each line is a JSON object; only kind is required, and empty lines are skipped:

  {"kind":"digest","payload":{"container":"data","blob":"a"}}
  {"id":"frame-7","kind":"render","payload_base64":"AAEC","deadline":"2026-01-31T09:30:00Z","estimate":"5h","delay":"90s"}

A delay here overrides --delay, and so do group, max_run, max_silence and estimate. A bad line is reported
with its number and does not affect the others: they are put, and the exit code is 1. Ids are
printed as they are confirmed, not in the order of the lines.

With --commands each line is a command: text for sh -c, or {"argv":["PROGRAM","ARGUMENT"]}. Its job runs
as with producer run, under a new id.

Lines without an id get a new one each time. Give them ids of your own if the same input may be put
again: a second run skips the jobs that have ended. Reading their records costs one call a line,
--parallel at once; lines without an id cost none.`
}

func (c *linesCommand) run(ctx context.Context, s *session) error {
	in, closeInput, err := c.open(ctx, s.stdin)
	if err != nil {
		return err
	}
	defer closeInput()
	read := func(in io.Reader) iter.Seq2[producer.Spec, error] { return producer.Lines(in, s.flags.defaults()) }
	if c.Commands {
		defaults := s.flags.defaults()
		defaults.Kind = c.Kind
		read = func(in io.Reader) iter.Seq2[producer.Spec, error] { return producer.Commands(in, defaults) }
	}
	total, err := c.lookAhead(ctx, s, in, read)
	if err != nil {
		return err
	}
	deployment, err := s.open(ctx)
	if err != nil {
		return err
	}
	return s.put(ctx, deployment, source{
		jobs: specs(read(in)), total: total,
		resumeHint: "lines that have an id can be put again, the others only after that place",
	}, s.options(c.Check || s.flags.TakeOver || s.flags.Again))
}

// lookAhead reads the input a first time if that is possible and useful, to check or
// count its lines. It returns the number of jobs: -1 if it is unknown, and 0, for no
// progress bar, if the input is typed.
func (c *linesCommand) lookAhead(ctx context.Context, s *session, in io.Reader,
	read func(io.Reader) iter.Seq2[producer.Spec, error]) (total int64, err error) {
	seeker, ok := in.(io.Seeker)
	switch {
	case ok && c.Strict:
		total, err = s.checkLines(ctx, read(in))
	case ok && s.report.screen.bars:
		total, err = countLines(in)
	case c.File == "-" && cli.IsTerminal(s.stdin):
		return 0, nil
	default:
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	if _, err := seeker.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read the input again: %w", err)
	}
	return total, nil
}

// countLines returns the number of lines, except a last line without a line end.
func countLines(in io.Reader) (n int64, err error) {
	buffer := make([]byte, 64<<10)
	for {
		read, err := in.Read(buffer)
		n += int64(bytes.Count(buffer[:read], []byte("\n")))
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return 0, fmt.Errorf("count the lines: %w", err)
		}
	}
}

// open returns the input. With --strict it can be read twice.
func (c *linesCommand) open(ctx context.Context, stdin io.Reader) (in io.Reader, closeInput func(), err error) {
	in, closeInput = stdin, func() {}
	regular := false
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, nil, &cli.ConfigError{Err: err}
		}
		info, err := file.Stat()
		regular = err == nil && info.Mode().IsRegular()
		in, closeInput = file, func() { _ = file.Close() }
	}
	if regular {
		return in, closeInput, nil
	}
	in = producer.Interruptible(ctx, in)
	if !c.Strict {
		return in, closeInput, nil
	}
	defer closeInput()
	return producer.Spool(in)
}

// checkLines reads all lines and reports the bad ones.
func (s *session) checkLines(ctx context.Context, jobs iter.Seq2[producer.Spec, error]) (total int64, err error) {
	checked, bad, err := producer.Check(ctx, jobs, func(bad *producer.JobError) {
		_ = s.report.failed(client.PutResult{ID: bad.ID, Where: bad.Where, Err: bad.Err}) // the next line that cannot be printed ends the run
	})
	switch {
	case ctx.Err() != nil:
		return 0, errNothingYet
	case err != nil:
		return 0, fmt.Errorf("%w; nothing was enqueued", err)
	case bad > 0:
		s.report.sum.Failed = bad
		return 0, fmt.Errorf("%d of %d lines are bad; nothing was enqueued", bad, checked)
	}
	return int64(checked), nil
}
