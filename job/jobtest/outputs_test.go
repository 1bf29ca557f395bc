package jobtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/job"
)

// stores returns handlers that send an output for each of six pages. An early one reports
// a page before it has sent it; name makes a path, content its content.
func stores(early bool, name, content func(run, page int) string) func() job.Handler {
	runs := 0
	return func() job.Handler {
		runs++
		run := runs
		return job.Typed(1, func(ctx context.Context, j *job.TypedJob[struct{}, pages]) (any, error) {
			for j.State.Next < 6 {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				page := j.State.Next
				j.State.Next++
				if early {
					if err := j.ReportState(float64(j.State.Next)/6, ""); err != nil {
						return nil, err
					}
				}
				if err := j.SendOutput(ctx, name(run, page), strings.NewReader(content(run, page))); err != nil {
					return nil, err
				}
				if err := j.ReportState(float64(j.State.Next)/6, ""); err != nil && !early {
					return nil, err
				}
			}
			return "stored", nil
		})
	}
}

// TestOutputs: outputs belong to the outcome of a job.
func TestOutputs(t *testing.T) {
	payload := Case{Payload: []byte("{}")}
	page := func(_, page int) string { return fmt.Sprintf("page %d", page) }
	run := func(run, page int) string { return fmt.Sprintf("%d in run %d", page, run) }
	Run(t, stores(false, page, page), payload)
	for name, row := range map[string]struct {
		handler func() job.Handler
		want    string
	}{
		"reported too early":    {stores(true, page, page), "an output is missing"},
		"names of the moment":   {stores(false, run, page), "output"},
		"contents of a process": {stores(false, page, run), "an output differs"},
	} {
		if _, err := prove(t.Context(), row.handler, payload); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Run = %v, want a fault with %q", name, err, row.want)
		}
	}
}
