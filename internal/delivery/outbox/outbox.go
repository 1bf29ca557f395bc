// Package outbox stores the outputs of a job for its handler: it repeats calls to storage,
// and classifies its errors, so that the handler may return them unchanged.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/job"
)

// Outbox stores the outputs of one delivery. It implements [job.Outputs].
type Outbox struct {
	Set    *outputs.Set
	Caller Caller
}

// Caller is the delivery that stores the outputs.
type Caller interface {
	// Retry repeats a call to storage until it succeeds, ctx ends, or IsLasting
	// reports its error as lasting: no further try can change it.
	Retry(ctx context.Context, what string, try func() error) error
	IsLasting(err error) bool

	// Sent is called with each file that was stored, and how long that took.
	Sent(ctx context.Context, f outputs.File, took time.Duration)
}

// Send stores a file. It is sent again where a call fails, as long as the content can be
// read again.
func (o *Outbox) Send(ctx context.Context, path string, size int64, content io.Reader) (job.Output, error) {
	seeker, canRepeat := content.(io.Seeker)
	var begin int64
	if canRepeat {
		var err error
		if begin, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			canRepeat = false
		}
	}
	var f outputs.File
	var failed error // of a content that cannot be read again
	begun, tries := time.Now(), 0
	err := o.Caller.Retry(ctx, "send an output of the job", func() (err error) {
		if tries++; tries > 1 {
			if _, err := seeker.Seek(begin, io.SeekStart); err != nil {
				return &outputs.SourceError{Path: path, Err: err}
			}
		}
		f, err = o.Set.Send(ctx, path, size, content)
		if err != nil && !canRepeat && !o.Caller.IsLasting(err) {
			failed, err = err, nil
		}
		return err
	})
	if err = cmp.Or(failed, err); err != nil {
		return job.Output{}, explain(ctx, err)
	}
	o.Caller.Sent(ctx, f, time.Since(begun))
	return outputOf(f), nil
}

// explain returns the error of a file that was not stored.
func explain(ctx context.Context, err error) error {
	_, unreadable := errors.AsType[*outputs.SourceError](err)
	switch {
	case errors.Is(err, paths.ErrRefused):
		return job.Permanent(err)
	case unreadable, ctx.Err() != nil:
		return err
	default:
		return job.Unavailable(err)
	}
}

// Open returns the content of an output. That its blob is gone, or that storage refuses it
// permanently, is an ordinary error, and so a failure of the job that counts.
func (o *Outbox) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	var body io.ReadCloser
	err := o.Caller.Retry(ctx, "read an output of the job", func() (err error) {
		body, err = o.Set.Open(ctx, path)
		return err
	})
	if err != nil {
		return nil, explainRead(err)
	}
	return &content{ctx: ctx, ReadCloser: body}, nil
}

// content is the content of an output.
type content struct {
	io.ReadCloser
	ctx context.Context
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF), c.ctx.Err() != nil:
		return n, err
	case errors.Is(err, outputs.ErrGone):
		return n, explainRead(err)
	}
	return n, job.Unavailable(err)
}

// explainRead adds to the error of an output that is gone what to do about it.
func explainRead(err error) error {
	if errors.Is(err, outputs.ErrGone) {
		return fmt.Errorf("%w; put it back, or start the job over with spotctl poison replay --from-scratch", err)
	}
	return err
}

// Remove removes an output.
func (o *Outbox) Remove(path string) { o.Set.Remove(path) }

// List returns the outputs in the order of their paths.
func (o *Outbox) List() []job.Output {
	files := o.Set.Files()
	all := make([]job.Output, 0, len(files))
	for _, f := range files {
		all = append(all, outputOf(f))
	}
	return all
}

func outputOf(f outputs.File) job.Output {
	return job.Output{Path: f.Path, Size: f.Size, SHA256: f.SHA256, Executable: f.Executable}
}
