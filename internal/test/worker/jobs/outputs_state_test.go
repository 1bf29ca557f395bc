package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// copier stores a copy of each of its input files, half a minute apart, and skips
// existing copies, as a program without checkpoints does.
type copier struct {
	mu    sync.Mutex
	found []string // the outputs that each run began with
	fails bool     // it fails instead of the last file
}

func (c *copier) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	var before []string
	for _, o := range j.Outputs() {
		before = append(before, o.Path)
	}
	c.mu.Lock()
	c.found = append(c.found, strings.Join(before, " "))
	c.mu.Unlock()
	text, err := rig.ReadInputs(j)
	if err != nil {
		return nil, err
	}
	for n := range 4 {
		if n == 3 && c.fails {
			return nil, job.Permanent(errors.New("a bad version of the program"))
		}
		name := fmt.Sprint("copy-", n)
		if strings.Contains(strings.Join(before, " "), name) {
			continue
		}
		if err := j.SendOutput(ctx, name, strings.NewReader(text)); err != nil {
			return nil, err
		}
		if !rig.SleepFor(ctx, 30*time.Second) {
			return nil, context.Cause(ctx)
		}
	}
	return []byte("copied"), nil
}

// TestOutputsOfChangedInputs: a job without a checkpoint whose inputs changed does not mix
// outputs of the old ones and of the new ones. Its replay from scratch begins without any.
func TestOutputsOfChangedInputs(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.CacheInputs = folder
		b.PutData("in", "old")
		b.PutWithInputs("a", "copies", job.Input{Container: "data", Blob: "in"})
		work := &copier{}
		kinds := job.Kinds{"copies": job.WithOutputs(work, job.OutputLimits{})}
		p := b.Start("vm_0", kinds)
		time.Sleep(50 * time.Second)
		p.Stop()
		if r := b.Record("a"); r.Outputs.Files != 2 || r.HasState() {
			t.Fatalf("record = %d outputs, state %t; want 2 and none", r.Outputs.Files, r.HasState())
		}
		b.PutData("in", "new")
		b.Start("vm_1", kinds)
		b.WaitFor("the end of the job", 10*time.Minute, func() bool { return b.Record("a").Status.Final() })
		if r := b.Record("a"); r.Status != checkpoint.Poison || !strings.Contains(r.Reason, "inputs changed since its outputs were made") {
			t.Errorf("record = %s, %q, want poison because the inputs changed", r.Status, r.Reason)
		}
		b.Replay(true, "a")
		if r := b.Record("a"); r.Outputs != (checkpoint.Outputs{}) {
			t.Errorf("outputs after a replay from scratch = %+v, want none", r.Outputs)
		}
		b.WaitDone("a", 10*time.Minute)
		want := map[string]string{}
		for n := range 4 {
			want[fmt.Sprint("copy-", n)] = "in=new;"
		}
		if got := b.FilesOf("a"); !maps.Equal(got, want) {
			t.Errorf("outputs = %q, want those of the new input alone, %q", got, want)
		}
		if got := strings.Join(work.found, "|"); got != "|" {
			t.Errorf("outputs that the runs began with = %q, want none in both", got)
		}
	})
}

// TestReplayForgetsOutputs: a replay from scratch begins without the files of a bad version
// of the program, also if their list is gone; a plain replay continues with them.
func TestReplayForgetsOutputs(t *testing.T) {
	for _, row := range []struct {
		name             string
		scratch, without bool
		found            string // outputs that the last run began with
	}{
		{"from where it was", false, false, "copy-0 copy-1 copy-2"},
		{"from scratch", true, false, ""},
		{"from scratch, the list is gone", true, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				work := &copier{fails: true}
				b.Put("a", "copies", "")
				// The worker stops, so that the outputs so far are recorded, and the next one fails.
				p := b.Start("vm_0", job.Kinds{"copies": work})
				time.Sleep(75 * time.Second)
				p.Stop()
				b.Start("vm_1", job.Kinds{"copies": work})
				b.WaitFor("the end of the job", 10*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Poison })
				if r := b.Record("a"); r.Outputs.Files != 3 {
					t.Fatalf("outputs of the poison job = %d, want 3", r.Outputs.Files)
				}
				if row.without {
					b.RemoveLists("a")
				}
				work.mu.Lock()
				work.fails = false
				work.mu.Unlock()
				b.Replay(row.scratch, "a")
				b.WaitDone("a", 10*time.Minute)
				if got := work.found[len(work.found)-1]; got != row.found || len(b.FilesOf("a")) != 4 {
					t.Errorf("the replay began with %q and ended with %d outputs, want %q and 4", got, len(b.FilesOf("a")), row.found)
				}
			})
		})
	}
}

// TestCancelForgetsOutputs: the record of a cancelled job names no part of its outputs.
func TestCancelForgetsOutputs(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "copies", "")
		p := b.Start("vm_0", job.Kinds{"copies": &copier{}})
		b.WaitFor("an output", time.Minute, func() bool { return b.Record("a").Outputs.Files > 0 })
		b.CancelJobs("a")
		time.Sleep(time.Minute)
		p.Stop()
		if r := b.Record("a"); r.Status != checkpoint.Cancelled || r.Outputs != (checkpoint.Outputs{}) {
			t.Errorf("record = %s with outputs %+v, want cancelled without", r.Status, r.Outputs)
		}
	})
}

// TestOutputBlobIsGone: a job with an output that was removed from storage ends as poison
// after the usual number of attempts, with the name of the blob; so does a job whose list
// is gone.
func TestOutputBlobIsGone(t *testing.T) {
	for name, want := range map[string]string{"file": "/a/1-", "list": "list of the job's outputs cannot be read"} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.Put("a", "rereads", "")
				kinds := job.Kinds{"rereads": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
					for _, o := range j.Outputs() {
						body, err := j.OpenOutput(ctx, o.Path)
						if err != nil {
							return nil, err
						}
						_ = body.Close()
					}
					if err := j.SendOutput(ctx, "kept", strings.NewReader("1")); err != nil {
						return nil, err
					}
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})}
				p := b.Start("vm_0", kinds)
				time.Sleep(20 * time.Second)
				p.Stop()
				if name == "list" {
					b.RemoveLists("a")
				} else {
					b.RemoveOutput("a", "kept")
				}
				b.Start("vm_1", kinds)
				b.WaitFor("the end of the job", time.Hour, func() bool { return b.Record("a").Status.Final() })
				if r := b.Record("a"); r.Status != checkpoint.Poison || r.FailuresTotal != 5 || !strings.Contains(r.Reason, want) ||
					!strings.Contains(r.Reason, "--from-scratch") {
					t.Errorf("record = %s after %d failures, %q; want poison after 5 with %q", r.Status, r.FailuresTotal, r.Reason, want)
				}
			})
		})
	}
}
