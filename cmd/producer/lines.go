package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
)

// linesCommand puts the jobs of a file.
type linesCommand struct {
	File   string `arg:"" optional:"" default:"-" help:"File of JSON lines; - or nothing is standard input." placeholder:"FILE"`
	Strict bool   `help:"Check all lines first, and put nothing when one is bad." env:"-"`
}

// Help is shown by lines --help.
func (*linesCommand) Help() string {
	return `Each line is a JSON object; only kind is required, and empty lines are skipped:

  {"kind":"digest","payload":{"container":"data","blob":"a"}}
  {"id":"frame-7","kind":"render","payload_base64":"AAEC","deadline":"2026-01-31T09:30:00Z"}

A bad line is reported with its number and costs the others nothing: they are put, and the exit code is 1. Ids are printed as they are confirmed, not in the order of the lines.

Lines without an id get a new one each time. Give them ids of your own if the same input may be put again.`
}

func (c *linesCommand) run(ctx context.Context, s *session) error {
	in, closeInput, err := c.open(ctx, s.stdin)
	if err != nil {
		return err
	}
	defer closeInput()
	if seeker, ok := in.(io.Seeker); ok && c.Strict {
		if err := s.checkLines(ctx, in); err != nil {
			return err
		}
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read the input again: %w", err)
		}
	}
	stores, err := s.open(ctx)
	if err != nil {
		return err
	}
	const again = "lines with an id of their own can be put again, the others only from there on"
	return s.put(ctx, s.producer(stores), producer.Lines(in), again)
}

// open returns the input: one that can be read twice if that is needed.
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
func (s *session) checkLines(ctx context.Context, in io.Reader) error {
	checked, bad, err := producer.Check(ctx, producer.Lines(in), s.complain)
	switch {
	case ctx.Err() != nil:
		return errNothingYet
	case err != nil:
		return fmt.Errorf("%w; nothing was enqueued", err)
	case bad > 0:
		return fmt.Errorf("%d of %d lines are bad; nothing was enqueued", bad, checked)
	}
	return nil
}
