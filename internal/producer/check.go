package producer

import (
	"context"
	"errors"
	"iter"
)

// Check reads a source to its end without putting anything. It passes each job
// that is none to failed and returns how many jobs the source has, and how many
// of them are bad. The error is [ErrInterrupted] when ctx ended first, or one of
// the source that is no [*JobError].
func Check(ctx context.Context, jobs iter.Seq2[Job, error], failed func(*JobError)) (checked, bad int, err error) {
	for _, err := range jobs {
		if ctx.Err() != nil {
			return checked, bad, ErrInterrupted
		}
		checked++
		jobError, ok := errors.AsType[*JobError](err)
		switch {
		case ok:
			bad++
			failed(jobError)
		case err != nil:
			return checked, bad, err
		}
	}
	return checked, bad, nil
}
