package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/job"
)

// TestLinesOfAHandler: a line of a handler names its job and the claim.
func TestLinesOfAHandler(t *testing.T) {
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		job.Logger(ctx).InfoContext(ctx, "halfway", "step", 3)
		return nil, nil
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s")})
		b.runOne()
		found := b.log.Find("halfway")
		if len(found) != 1 || found[0]["job_id"] != "a" || found[0]["kind"] != "k" || found[0]["generation"] != 2.0 || found[0]["step"] != 3.0 {
			t.Errorf("lines = %v, want one with the job, its kind, generation 2 and the step", found)
		}
	})
}

// TestLinesOfEnds: the line about the end of a delivery has its figures, and a field for outputs only if there are some.
func TestLinesOfEnds(t *testing.T) {
	for name, row := range map[string]struct {
		outputs int
		err     error
		line    string
		fields  map[string]any
		without []string
	}{
		"committed": {0, nil, "job committed", map[string]any{"generation": 1.0, "interruptions": 0.0, "result_bytes": 6.0},
			[]string{"output_files", "output_bytes"}},
		"with an output": {1, nil, "job committed", map[string]any{"output_files": 1.0, "output_bytes": 5.0, "result_bytes": 6.0}, nil},
		"with two":       {2, nil, "job committed", map[string]any{"output_files": 2.0, "output_bytes": 10.0}, nil},
		"released": {0, job.Interrupted(errors.New("wait")), "job released", map[string]any{"reason": "wait", "fraction": 0.25,
			"state_bytes": 3.0, "state_left_out": false, "moved": false}, nil},
		"failed": {0, errors.New("out of luck"), "job failed; it will be tried again", map[string]any{"error": "out of luck",
			"failures": 1.0, "failures_total": 1.0, "visible_in": float64(7 * time.Second)}, nil},
		"dead-lettered": {0, job.Permanent(errors.New("never")), "message moved to the poison queue", map[string]any{"reason": "never"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for i := range row.outputs {
					if err := j.SendOutput(ctx, strings.Repeat("x", i+1), strings.NewReader("12345")); err != nil {
						return nil, err
					}
				}
				if row.err != nil {
					j.Report(job.Progress{State: []byte("abc"), Fraction: 0.25})
				}
				return []byte("result"), row.err
			})
			onBench(t, job.Kinds{"k": job.WithLimits(run, job.Limits{Backoff: 7 * time.Second})}, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				found := b.log.Find(row.line)
				if len(found) != 1 {
					t.Fatalf("%d lines %q, want one", len(found), row.line)
				}
				for key, want := range row.fields {
					if got := found[0][key]; got != want {
						t.Errorf("%s = %v, want %v", key, got, want)
					}
				}
				for _, key := range row.without {
					if got, ok := found[0][key]; ok {
						t.Errorf("%s = %v, want no such field", key, got)
					}
				}
			})
		})
	}
}
