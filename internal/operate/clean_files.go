package operate

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// broughtFiles are the files that open jobs have brought, by the names of their blobs.
type broughtFiles struct {
	named   map[string]bool
	records map[string]bool // dead-lettered jobs with a record
	unknown bool            // an open job may name files that its record does not show
}

// keep records the files that a job names that is not over.
func (r *cleaning) keep(record *checkpoint.Record) {
	if r.poison[record.ID] {
		r.brought.records[record.ID] = true
	}
	if record.Status == checkpoint.Done || record.Status == checkpoint.Cancelled {
		return
	}
	list, err := named.Parse(record.UnpackInputs())
	switch {
	case err == nil:
		for _, in := range list {
			r.brought.named[in.Blob] = true
		}
	case record.Inputs != "", record.Claims() == 0 && record.ReadAt.Sub(record.CreatedAt) >= r.OlderThan:
		r.brought.unknown = true // its list is too long for a record, or no worker has claimed it yet
	}
}

// files removes files that jobs have brought and no open job names. A job that was put within
// [Cleaner.OlderThan] names none of that age, and older ones have records, or a message on the
// poison queue.
func (r *cleaning) files(ctx context.Context) error {
	if r.brought.unknown || len(r.brought.records) < r.poisonJobs {
		return nil
	}
	var group errgroup.Group
	group.SetLimit(cleanParallel)
	defer func() { _ = group.Wait() }() // its functions return no error
	for b, err := range r.Outputs.ListFiles(ctx) {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case b.Age() >= r.OlderThan+outputs.FilesPeriod && !r.brought.named[b.Name]:
			group.Go(func() error { r.removeFile(context.WithoutCancel(ctx), b); return nil })
		}
	}
	return nil
}

func (r *cleaning) removeFile(ctx context.Context, b blobs.Blob) {
	removed, err := r.DryRun, error(nil)
	if !removed {
		removed, err = r.Outputs.RemoveFile(ctx, b)
	}
	if err != nil {
		r.fail(b.Name, err)
	}
	if removed {
		r.count(func(report *CleanReport) {
			report.Outputs, report.OutputBytes = report.Outputs+1, report.OutputBytes+b.Size
		})
	}
}
