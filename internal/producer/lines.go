package producer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spotworker/spotworker/internal/queue"
)

// maxLine is the longest line, in bytes: the largest payload in base64, and
// room for the other fields.
const maxLine = queue.MaxPayload/3*4 + 64<<10

// errLineTooLong says that a line was skipped for its length.
var errLineTooLong = fmt.Errorf("it is longer than %d bytes: put large data in a blob and name it in the payload", maxLine)

// byteOrderMark is what some editors and shells put before UTF-8.
var byteOrderMark = []byte("\uFEFF")

// Lines yields the job of each line of r, which is JSON:
//
//	{"kind":"digest","payload":{"container":"data","blob":"a"}}
//	{"id":"frame-7","kind":"render","payload_base64":"AAEC","deadline":"2026-01-31T09:30:00Z","delay":"90s"}
//
// Only kind is required; max_run and max_silence are times like delay. usual are
// the terms of the lines that name none. Empty lines are skipped. A line that is
// no job yields a [*JobError]; an error of r itself ends the sequence.
func Lines(r io.Reader, usual Terms) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		lines := lineReader{in: bufio.NewReaderSize(r, 64<<10), limit: maxLine}
		for n := 1; ; n++ {
			where := fmt.Sprintf("line %d", n)
			line, err := lines.next()
			if n == 1 {
				line = bytes.TrimPrefix(line, byteOrderMark)
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errLineTooLong):
				err = &JobError{Where: where, Err: err}
			case err != nil:
				yield(Job{}, fmt.Errorf("read %s: %w", where, err))
				return
			case len(line) == 0:
				continue
			}
			var j Job
			if err == nil {
				j, err = parseLine(where, line, usual)
			}
			if !yield(j, err) {
				return
			}
		}
	}
}

// parseLine returns the job of a line; any error is a *JobError.
func parseLine(where string, line []byte, usual Terms) (Job, error) {
	spec, err := parseSpec(line, usual)
	if err == nil {
		var j Job
		if j, err = NewJob(where, spec); err == nil {
			return j, nil
		}
	}
	return Job{}, &JobError{Where: where, ID: spec.ID, Err: err}
}

// lineReader reads lines of up to limit bytes into one buffer.
type lineReader struct {
	in    *bufio.Reader
	limit int
	line  []byte
}

// next returns the next line without the space around it, which is good until
// the call after. The error is io.EOF at the end and errLineTooLong for a line
// that was skipped; after any other the line is incomplete and not returned.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	tooLong := false
	for begun := false; ; begun = true {
		part, err := l.in.ReadSlice('\n')
		if !tooLong {
			l.line = append(l.line, part...)
		}
		if len(l.line) > l.limit {
			tooLong, l.line = true, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case tooLong:
			return nil, errLineTooLong
		case err != nil && len(part) == 0 && !begun:
			return nil, io.EOF
		}
		return bytes.TrimSpace(l.line), nil
	}
}
