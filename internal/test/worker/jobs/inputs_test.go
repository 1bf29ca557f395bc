package jobs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// inputLink is a worker's connection to the data of jobs.
type inputLink struct {
	next   policy.Transporter
	takes  time.Duration                  // how long each call takes
	answer func(r *http.Request) int      // the status of a call that the service refuses; 0 for the others
	before atomic.Pointer[func(r string)] // called with the path of each call
}

func (l *inputLink) Do(r *http.Request) (*http.Response, error) {
	if before := l.before.Load(); before != nil {
		(*before)(r.URL.Path)
	}
	select {
	case <-time.After(l.takes):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if l.answer != nil {
		if status := l.answer(r); status != 0 {
			return &http.Response{
				StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r,
				Header: http.Header{"X-Ms-Error-Code": {http.StatusText(status)}},
			}, nil
		}
	}
	return l.next.Do(r)
}

// withInputs gives a worker a cache in a folder.
func withInputs(b *rig.Bed, folder string, limit int64, l *inputLink) func(*worker.Config) {
	if l.next == nil {
		l.next = b.Server.Transport()
	}
	fetcher := b.Fetcher(folder, limit, b.Account(l))
	return func(c *worker.Config) { c.Inputs = fetcher }
}

// reader returns the content of the job's inputs, after it has reported a state and waited.
func reader(wait time.Duration) job.Handler {
	return job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: []byte("reading")})
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		found, err := rig.ReadInputs(j)
		return []byte(found), err
	})
}

// TestInputs: a handler finds the files of its job. The next job finds them in the cache,
// also on another worker of the machine, and nothing is left in use.
func TestInputs(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a/1", "one")
		b.PutData("a/2", "two")
		b.PutData("b", "three")
		for i := range 3 {
			id := fmt.Sprintf("job-%d", i)
			b.PutWithInputs(id, "read", job.Input{Container: "data", Prefix: "a/", To: "in"}, job.Input{Container: "data", Blob: "b"})
			b.Server.ResetCounts()
			p := b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, &inputLink{}))
			b.WaitDone(id, time.Minute)
			result, err := b.Records.Result(t.Context(), id)
			if err != nil || string(result) != "b=three;in/1=one;in/2=two;" {
				t.Errorf("result = %q, %v", result, err)
			}
			lines := p.Log.Find("inputs of the job are ready")
			if len(lines) != 1 {
				t.Fatalf("log has %d lines about inputs, want 1", len(lines))
			}
			want := 0.0
			if i == 0 {
				want = 11
			}
			if got := lines[0]["fetched_bytes"]; got != want {
				t.Errorf("job %d fetched %v bytes, want %v", i, got, want)
			}
			p.Stop()
		}
		if held, err := filepath.Glob(filepath.Join(folder, "workers", "*", "job-*")); err != nil || len(held) > 0 {
			t.Errorf("still in use: %q, %v", held, err)
		}
	})
}

// TestInputsOfAResumedJob: a job continues from its checkpoint with the inputs that it
// began with. If one has changed, the job is dead-lettered, since its state belongs to
// others; without a state it takes the present inputs.
func TestInputsOfAResumedJob(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler job.Handler
		change  bool
		want    checkpoint.Status
	}{
		{"unchanged", reader(2 * time.Minute), false, checkpoint.Done},
		{"changed", reader(2 * time.Minute), true, checkpoint.Poison},
		{"changed without a state", job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			select {
			case <-time.After(2 * time.Minute):
				return []byte("done"), nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}), true, checkpoint.Done},
	} {
		t.Run(row.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "inputs")
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.PutData("a", "one")
				b.PutWithInputs("j", "read", job.Input{Container: "data", Blob: "a"})
				first := b.Start("vm_0", job.Kinds{"read": row.handler}, withInputs(b, folder, 1<<30, &inputLink{}))
				b.WaitFor("the job runs", time.Minute, func() bool { return b.Record("j").Status == checkpoint.Running })
				if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
					t.Fatal(err)
				}
				b.WaitFor("release", 5*time.Second, func() bool { return first.Position().Facts.Has(lifecycle.WorkReleased) })
				if r := b.Record("j"); r.Status != checkpoint.Open || len(r.Inputs) != 64 {
					t.Errorf("record = %s with inputs %q, want open with a hash", r.Status, r.Inputs)
				} else if got, want := string(r.UnpackInputs()), `[{"container":"data","blob":"a"}]`; got != want {
					t.Errorf("inputs in the record = %s, want %s", got, want)
				}
				first.Kill()
				if row.change {
					b.PutData("a", "two")
				}
				b.Start("vm_1", job.Kinds{"read": row.handler}, withInputs(b, folder, 1<<30, &inputLink{}))
				b.WaitFor("the end", 10*time.Minute, func() bool { return b.Record("j").Status.Final() })
				r := b.Record("j")
				if r.Status != row.want {
					t.Errorf("status = %s, want %s: %s", r.Status, row.want, r.Reason)
				}
				if row.want == checkpoint.Poison && !(strings.Contains(r.Reason, "changed since its checkpoint") &&
					strings.Contains(r.Reason, `blob "a"`)) {
					t.Errorf("reason = %q, want that an input changed, with its name", r.Reason)
				}
			})
		})
	}
}

// TestInputsThatCannotBe: an error that no retry can fix ends the job at once, and a role
// that is missing after the usual failures; the reason names the input.
func TestInputsThatCannotBe(t *testing.T) {
	for _, row := range []struct {
		name     string
		input    job.Input
		status   int // of calls for the input
		failures int
		want     string
	}{
		{"a missing blob", job.Input{Container: "data", Blob: "none"}, 0, 0, `the input blob "none" in container data does not exist`},
		{"a prefix without blobs", job.Input{Container: "data", Prefix: "none/"}, 0, 0,
			`the blobs in container data with the prefix "none/" are none`},
		{"a missing container", job.Input{Container: "nodata", Blob: "a"}, 0, 0, "container"},
		{"another version", job.Input{Container: "data", Blob: "a", ETag: `"0x0"`}, 0, 0, "has changed: its ETag is"},
		{"a path that escapes", job.Input{Container: "data", Blob: "a", To: "../a"}, 0, 0, "leave the folder of inputs"},
		{"records of jobs", job.Input{Container: "test-jobs", Prefix: "0"}, 0, 0, "inputs cannot come from there"},
		{"another account", job.Input{Account: "https://evil.example", Container: "data", Blob: "a"}, 0, 0, "--input-container"},
		{"no rights", job.Input{Container: "data", Blob: "a"}, http.StatusForbidden, 5, "Storage Blob Data Reader"},
	} {
		t.Run(row.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "inputs")
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.PutData("a", "one")
				b.PutWithInputs("j", "read", row.input)
				b.Start("vm_0", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30,
					&inputLink{answer: func(*http.Request) int { return row.status }}))
				b.WaitFor("the end", 30*time.Minute, func() bool { return b.Record("j").Status.Final() && len(b.PoisonMessages()) == 1 })
				r := b.Record("j")
				if r.Status != checkpoint.Poison || r.FailuresTotal != row.failures || !strings.Contains(r.Reason, row.want) {
					t.Errorf("record = %s after %d failures, %q; want poison after %d with %q", r.Status, r.FailuresTotal, r.Reason, row.failures,
						row.want)
				}
			})
		})
	}
}

// TestDuplicateWithoutInputs: a second message of a job that is done is removed, although
// its inputs are gone by then.
func TestDuplicateWithoutInputs(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a", "one")
		for range 2 {
			b.PutWithInputs("j", "read", job.Input{Container: "data", Blob: "a"})
		}
		b.Start("vm_0", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, &inputLink{}), func(c *worker.Config) {
			c.Concurrency = 1
			c.OnName = func(string) {}
		})
		b.WaitDone("j", time.Minute)
		_, _ = b.Account(b.Server.Transport()).Container("data").NewBlobClient("a").Delete(t.Context(), nil)
		b.WaitFor("the duplicate is removed", 5*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("j"); r.Status != checkpoint.Done || len(b.PoisonMessages()) != 0 {
			t.Errorf("record = %s, %d poison messages, want done and none", r.Status, len(b.PoisonMessages()))
		}
	})
}

// TestEvictedWhileFetching: a notice ends the fetch at once. The job is released, nothing
// counts against it, and nothing incomplete is left.
func TestEvictedWhileFetching(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		for i := range 10 {
			b.PutData(fmt.Sprintf("a/%d", i), strings.Repeat("x", 1000))
		}
		b.PutWithInputs("j", "read", job.Input{Container: "data", Prefix: "a/"})
		slow := &inputLink{takes: 15 * time.Second}
		first := b.Start("vm_0", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, slow))
		time.Sleep(25 * time.Second) // the listing took 15 s
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		announced := time.Now()
		b.WaitFor("release", 5*time.Second, func() bool { return first.Position().Facts.Has(lifecycle.WorkReleased) })
		if took := time.Since(announced); took > 1500*time.Millisecond {
			t.Errorf("released after %s, want a poll and little more", took)
		}
		r := b.Record("j")
		if r.Failures+r.ChargedExits+r.EarlyExits != 0 || r.RunTime != 0 {
			t.Errorf("record counts %d failures, %d exits and %s of run time, want none", r.Failures, r.ChargedExits+r.EarlyExits, r.RunTime)
		}
		if m := b.Server.Messages(b.Names.Queue); len(m) != 1 || !m[0].Visible {
			t.Errorf("messages after the release = %+v, want one that is visible", m)
		}
		left, err := filepath.Glob(filepath.Join(folder, "*", "*", "*"))
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
		first.Kill()
		b.Start("vm_1", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, &inputLink{}))
		b.WaitDone("j", time.Minute)
	})
}

// TestFetchingIsNotSilence: a fetch takes longer than the job may be silent, and run.
func TestFetchingIsNotSilence(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a", "one")
		b.PutWithInputs("j", "read", job.Input{Container: "data", Blob: "a"})
		limited := job.WithLimits(reader(0), job.Limits{MaxRun: 5 * time.Second, MaxSilence: 5 * time.Second})
		b.Start("vm_0", job.Kinds{"read": limited}, withInputs(b, folder, 1<<30, &inputLink{takes: 15 * time.Second}))
		b.WaitDone("j", 2*time.Minute)
		if r := b.Record("j"); r.FailuresTotal != 0 || r.RunTime > time.Second {
			t.Errorf("record = %d failures, run time %s, want none", r.FailuresTotal, r.RunTime)
		}
	})
}

// TestCancelWhileFetching: an operator's cancel ends the fetch.
func TestCancelWhileFetching(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a", "one")
		b.PutWithInputs("j", "read", job.Input{Container: "data", Blob: "a"})
		b.Start("vm_0", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, &inputLink{takes: 10 * time.Minute}))
		time.Sleep(10 * time.Second)
		b.CancelJobs("j")
		b.WaitFor("the message is gone", 2*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("j"); r.Status != checkpoint.Cancelled {
			t.Errorf("status = %s, want cancelled", r.Status)
		}
	})
}

// TestNoRoomForInputs: a job that does not fit now is released, uncounted, and runs on a
// machine with room; a job that never fits on this machine fails before any download.
func TestNoRoomForInputs(t *testing.T) {
	small, large := filepath.Join(t.TempDir(), "small"), filepath.Join(t.TempDir(), "large")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a", strings.Repeat("a", 700))
		b.PutData("b", strings.Repeat("b", 700))
		b.PutData("c", strings.Repeat("c", 1700))
		b.PutWithInputs("holds", "read", job.Input{Container: "data", Blob: "a"})
		p := b.Start("vm_0", job.Kinds{"read": reader(10 * time.Minute)}, withInputs(b, small, 1000, &inputLink{}))
		b.WaitFor("the first job runs", time.Minute, func() bool { return b.Record("holds").Status == checkpoint.Running })
		b.PutWithInputs("waits", "read", job.Input{Container: "data", Blob: "b"})
		b.WaitFor("no room", time.Minute, func() bool {
			return len(p.Log.Find("no room for the inputs of a job on this machine now; it is tried again, here or elsewhere")) > 0
		})
		b.PutWithInputs("never", "read", job.Input{Container: "data", Blob: "c"})
		b.WaitFor("too large", time.Minute, func() bool { return b.Record("never").Failures > 0 })
		if r := b.Record("never"); !strings.Contains(r.Reason, "1700 bytes") || !strings.Contains(r.Reason, "--input-cache") {
			t.Errorf("reason = %q, want the sizes", r.Reason)
		}
		b.Start("vm_1", job.Kinds{"read": reader(0)}, withInputs(b, large, 1<<20, &inputLink{}))
		b.WaitDone("waits", 10*time.Minute)
		b.WaitDone("never", 10*time.Minute)
		if r := b.Record("waits"); r.FailuresTotal != 0 {
			t.Errorf("the job that waited has %d failures, want none", r.FailuresTotal)
		}
	})
}

// TestInputsUnavailable: while storage does not answer for the inputs, the job is tried
// again here and then released; nothing counts.
func TestInputsUnavailable(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.PutData("a", "one")
		b.PutWithInputs("j", "read", job.Input{Container: "data", Blob: "a"})
		over := time.Now().Add(5 * time.Minute)
		b.Start("vm_0", job.Kinds{"read": reader(0)}, withInputs(b, folder, 1<<30, &inputLink{answer: func(*http.Request) int {
			if time.Now().Before(over) {
				return http.StatusServiceUnavailable
			}
			return 0
		}}))
		b.WaitDone("j", 10*time.Minute)
		if r := b.Record("j"); r.FailuresTotal+r.Breaks != 0 || r.Interruptions == 0 {
			t.Errorf("record = %d failures, %d breaks, %d interruptions, want only interruptions", r.FailuresTotal, r.Breaks, r.Interruptions)
		}
	})
}
