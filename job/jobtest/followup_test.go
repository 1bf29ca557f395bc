package jobtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

type pages struct{ Next int }

// split returns handlers that put a follow-up job for each of ten pages. name makes the
// name of one. A handler that is early reports a page before it has put it.
func split(early bool, name func(run, page int) string) func() job.Handler {
	runs := 0
	return func() job.Handler {
		runs++
		run := runs
		return job.Typed(1, func(ctx context.Context, j *job.TypedJob[struct{}, pages]) (any, error) {
			for j.State.Next < 10 {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				page := j.State.Next
				put := func() error {
					_, err := j.Put(ctx, job.FollowUp{Name: name(run, page), Kind: "page", Payload: page})
					return err
				}
				report := func() error {
					j.State.Next++
					return j.ReportState(float64(j.State.Next)/10, "")
				}
				steps := []func() error{put, report}
				if early {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					if err := step(); err != nil {
						return nil, err
					}
				}
			}
			return "split", nil
		})
	}
}

// TestFollowUps: follow-up jobs are effects of a job, by their names.
func TestFollowUps(t *testing.T) {
	payload := Case{Payload: []byte("{}")}
	Run(t, split(false, func(_, page int) string { return fmt.Sprintf("page %d", page) }), payload)
	for name, row := range map[string]struct {
		handler func() job.Handler
		want    string
	}{
		"one name for all":    {split(false, func(int, int) string { return "page" }), "one idempotency key stands for two effects"},
		"names of the moment": {split(false, func(run, page int) string { return fmt.Sprintf("%d %d", run, page) }), "follow-up job"},
		"reported too early":  {split(true, func(_, page int) string { return fmt.Sprintf("page %d", page) }), "an effect did not happen"},
	} {
		if _, err := prove(t.Context(), row.handler, payload); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Run = %v, want a fault with %q", name, err, row.want)
		}
	}
}
