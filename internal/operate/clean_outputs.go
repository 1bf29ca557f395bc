package operate

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
)

// outputsOf removes the outputs of a job whose record was removed, or counts them. The record
// of a cancelled job names no outputs, even if the job had stored some before.
func (r *cleaning) outputsOf(ctx context.Context, record checkpoint.Record) {
	mayHave := record.Status == checkpoint.Cancelled && record.Generation > 0
	if record.Outputs.Files == 0 && !mayHave {
		return // any outputs of the job are garbage: see garbage
	}
	if r.DryRun { // without a listing
		r.count(func(report *CleanReport) {
			report.Outputs += record.Outputs.Files
			report.OutputBytes += record.Outputs.Bytes
		})
		return
	}
	for b, err := range r.Outputs.List(ctx, record.ID) {
		if err != nil {
			r.fail(record.ID, err)
			return
		}
		r.removeOutput(ctx, b)
	}
}

// removeOutput removes a blob, or counts it.
func (r *cleaning) removeOutput(ctx context.Context, b outputs.Stored) {
	removed := r.DryRun
	if !removed {
		var err error
		if removed, err = r.Outputs.Remove(ctx, b); err != nil {
			r.fail(b.Job, err)
		}
	}
	if removed {
		r.count(func(report *CleanReport) {
			report.Outputs++
			report.OutputBytes += b.Size
		})
	}
}

// garbage removes outputs that nothing names: outputs of jobs without a record, and
// outputs that a done job did not commit, for example from workers that were killed or
// lost the job. It goes through all outputs, and holds the names of one job's in memory.
func (r *cleaning) garbage(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(cleanParallel)
	defer func() { _ = group.Wait() }() // its functions return no error
	var of []outputs.Stored             // one job's
	flush := func() {
		blobs := of
		of = nil
		group.Go(func() error { r.garbageOf(context.WithoutCancel(ctx), blobs); return nil })
	}
	for b, err := range r.Outputs.List(ctx, "") {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(of) > 0 && of[0].Job != b.Job:
			flush()
		}
		of = append(of, b)
	}
	flush()
	return nil
}

// garbageOf removes what nothing names of a job's outputs.
func (r *cleaning) garbageOf(ctx context.Context, all []outputs.Stored) {
	var old []outputs.Stored
	for _, b := range all {
		if b.Age() >= r.OlderThan {
			old = append(old, b)
		}
	}
	if len(old) == 0 {
		return
	}
	id := old[0].Job
	record, err := r.Records.Read(ctx, id)
	var named map[string]bool
	switch {
	case errors.Is(err, checkpoint.ErrNotFound): // none is named
	case err != nil:
		r.fail(id, err)
		return
	case record.Version != checkpoint.Version, record.Status != checkpoint.Done, len(all) <= record.Outputs.Files+1:
		return // a later delivery may name them, or all are named
	default:
		if named, err = r.Outputs.Named(ctx, id, record.Outputs.Hash); err != nil {
			r.fail(id, err)
			return
		}
	}
	for _, b := range old {
		if !named[b.Name] {
			r.removeOutput(ctx, b)
		}
	}
}
