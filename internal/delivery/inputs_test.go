package delivery_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// withCache gives the worker a cache of inputs of that many bytes.
func withCache(folder string, limit int64) func(b *bench) {
	return func(b *bench) { b.config.Inputs = b.Fetcher(folder, limit, b.Account(b.Server.Transport())) }
}

var oneInput = job.Input{Container: "data", Blob: "in"}

// TestFetchOfInputs: a fetch is repeated while blobs change or are unavailable, a few times each, and then the job
// is left to others; only inputs that keep changing count against it.
func TestFetchOfInputs(t *testing.T) {
	for name, row := range map[string]struct {
		status  int
		code    string
		refused int // calls
		done    bool
		failed  int
		changed int // lines
		busy    int
	}{
		"at once":                   {0, "", 0, true, 0, 0, 0},
		"changes three times":       {412, "ConditionNotMet", 3, true, 0, 3, 0},
		"changes for ever":          {412, "ConditionNotMet", 1000, false, 1, 3, 0},
		"is unavailable for ever":   {503, "ServerBusy", 1000, false, 0, 0, 4},
		"is unavailable for a time": {503, "ServerBusy", 8, true, 0, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutData("in", "text")
				b.PutWithInputs("a", "k", oneInput)
				calls := 0
				b.fail(row.status, row.code, func(c storage.Call) bool {
					if row.refused == 0 || !on("data", storage.OpGetBlob)(c) {
						return false
					}
					calls++
					return calls <= row.refused
				})
				begun := time.Now()
				b.runOne()
				took := time.Since(begun)
				r := b.Record("a")
				if (r.Status == checkpoint.Done) != row.done || r.FailuresTotal != row.failed || row.done == (b.MessagesLeft() == 1) {
					t.Errorf("record = %s %q after %d failures, %d messages; want it done: %t", r.Status, r.Reason, r.FailuresTotal,
						b.MessagesLeft(), row.done)
				}
				if n := b.counter.Of("failed k, error")["failed k, error"]; n != row.failed || (r.FailedBy == "vm_0-boot") != (row.failed == 1) {
					t.Errorf("%d failures reported, the last on %q; want %d", n, r.FailedBy, row.failed)
				}
				changed, busy := b.lines("an input changed while it was fetched; looking again"),
					b.lines("inputs of the job are unavailable; trying again")
				if changed != row.changed || row.busy >= 0 && busy != row.busy {
					t.Errorf("%d lines about changes, %d about unavailable inputs after %s; want %d, %d", changed, busy, took, row.changed, row.busy)
				}
			}, withCache(folder, 1<<20))
		})
	}
}

// TestInputsWithoutACache: a worker without a cache leaves a job with inputs to others, after some seconds.
func TestInputsWithoutACache(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.PutWithInputs("a", "k", oneInput)
		begun := time.Now()
		b.runOne()
		lines := b.lines("inputs of the job are unavailable; trying again")
		if took := time.Since(begun); took < 7*time.Second || took > 8*time.Second || lines != 4 {
			t.Errorf("released after %s and %d lines, want the waits of five tries, 7.5s", took, lines)
		}
		if r := b.Record("a"); r.Status != "" || r.FailuresTotal != 0 || b.MessagesLeft() != 1 || b.visible() != 0 {
			t.Errorf("record = %q after %d failures, %d messages; want it left for later", r.Status, r.FailuresTotal, b.MessagesLeft())
		}
	})
}

// TestStopsOfAFetch: a job whose inputs are being fetched is stopped when it is cancelled, and when its VM goes.
func TestStopsOfAFetch(t *testing.T) {
	for name, row := range map[string]struct {
		stop func(t *testing.T, b *bench)
		left int
	}{
		"cancelled": {func(t *testing.T, b *bench) {
			if _, err := b.Records.Cancel(t.Context(), "a", "me", "not needed", true); err != nil {
				t.Fatal(err)
			}
			b.announce("a")
		}, 0},
		"the VM goes": {func(_ *testing.T, b *bench) {
			v := preempt.Verdict{Action: preempt.DrainBy, Budget: time.Minute, Event: preempt.Event{ID: "e", Type: "Reboot"}}
			b.config.Departure.Set(preempt.Decision{Verdict: v, Verdicts: []preempt.Verdict{v}}, time.Now())
			b.config.Departure.CloseIfDue(time.Now(), time.Hour)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutData("in", "text")
				b.PutWithInputs("a", "k", oneInput)
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if on("data", storage.OpGetBlob)(c) {
						return storage.Fault{Before: 25 * time.Second}
					}
					return storage.Fault{}
				})
				wait := b.begin(b.claim())
				time.Sleep(5 * time.Second)
				begun := time.Now()
				row.stop(t, b)
				if got, took := wait(), time.Since(begun); got != delivery.Ran || took > 3*time.Second {
					t.Errorf("result %d after %s, want the end of the fetch within 3 s", got, took)
				}
				if b.MessagesLeft() != row.left || b.visible() != row.left || b.counter.WithPrefix("started") != 0 {
					t.Errorf("%d messages, %d visible, %d starts; want %d, and no start", b.MessagesLeft(), b.visible(),
						b.counter.WithPrefix("started"), row.left)
				}
			}, withCache(folder, 1<<20))
		})
	}
}

// TestInputsThatAreGone: a job whose inputs are gone is poison, and a further message of it is removed if the job was done before.
func TestInputsThatAreGone(t *testing.T) {
	for name, row := range map[string]struct {
		done       bool
		released   bool // a record of an earlier message
		resumes    bool // as the message says
		status     checkpoint.Status
		poison     int
		generation int
	}{
		"done": {true, false, false, checkpoint.Done, 0, 1}, "not done": {false, false, false, checkpoint.Poison, 1, 1},
		"released": {false, true, false, checkpoint.Poison, 1, 2}, "resumes": {false, true, true, checkpoint.Poison, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutData("in", "text")
				b.PutWithInputs("a", "k", oneInput)
				text := b.Server.Messages(b.Names.Queue)[0].Text
				if row.done {
					b.runOne()
					b.PutText(text)
				}
				if _, err := b.Account(b.Server.Transport()).Container("data").NewBlobClient("in").Delete(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if row.released {
					e := decoded(t, text)
					if err := b.Records.Fresh(former(e), "vm_9-boot-1").Release(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
						t.Fatal(err)
					}
					if row.resumes {
						b.clear()
						e.Resume = true
						b.put(e)
					}
				}
				b.restarted()
				b.runOne()
				r := b.Record("a")
				if r.Generation != row.generation {
					t.Errorf("record of generation %d, want %d", r.Generation, row.generation)
				}
				if r.Status != row.status || b.MessagesLeft() != 0 || len(b.PoisonMessages()) != row.poison {
					t.Errorf("record = %s %q, %d messages, %d in the poison queue; want %s, none, %d", r.Status, r.Reason, b.MessagesLeft(),
						len(b.PoisonMessages()), row.status, row.poison)
				}
				if n := b.counter.Of("failed k, permanent")["failed k, permanent"]; n != row.poison {
					t.Errorf("%d permanent failures reported, want %d", n, row.poison)
				}
			}, withCache(folder, 1<<20))
		})
	}
}

// TestInputsOfAnUnknownHash: a job whose record has a state, and no hash of its inputs, continues from its state.
func TestInputsOfAnUnknownHash(t *testing.T) {
	folder := t.TempDir()
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.PutData("in", "text")
		b.PutWithInputs("a", "k", oneInput)
		e := decoded(t, b.Server.Messages(b.Names.Queue)[0].Text)
		if err := b.Records.Fresh(former(e), "vm_9-boot-1").Release(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
			t.Fatal(err)
		}
		b.clear()
		e.Resume = true
		b.put(e)
		b.runOne()
		if r := b.Record("a"); r.Status != checkpoint.Done || b.counter.WithPrefix("started resumed") != 1 {
			t.Errorf("record = %s %q, want it done from its state", r.Status, r.Reason)
		}
	}, withCache(folder, 1<<20))
}

// restarted replaces the worker's runner by a new one, as a restart of the process does.
func (b *bench) restarted() {
	b.Runner = delivery.NewRunner(b.config)
	b.SetOwner("vm_0-boot-2")
}

// TestInputsThatCannotBeRemoved: a worker that cannot remove the folder of a job's inputs logs that, and the job ends.
func TestInputsThatCannotBeRemoved(t *testing.T) {
	for name, blocked := range map[string]bool{"removed": false, "blocked": true} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			kinds := handle(func(_ context.Context, j *job.Job) ([]byte, error) {
				if !blocked {
					return nil, nil
				}
				folder := filepath.Dir(j.Inputs()[0].File)
				return nil, errors.Join(os.Rename(folder, folder+"-moved"), os.WriteFile(folder, nil, 0o600)) // a file is no folder
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.PutData("in", "text")
				b.PutWithInputs("a", "k", oneInput)
				b.runOne()
				lines := b.lines("folder of a job's inputs not removed; the next worker here does that")
				if r := b.Record("a"); r.Status != checkpoint.Done || (lines == 1) != blocked || lines > 1 {
					t.Errorf("record = %s %q, %d lines about the folder; want it done, and a line: %t", r.Status, r.Reason, lines, blocked)
				}
			}, withCache(root, 1<<20))
		})
	}
}

// TestInputsOfAJobThatIsNotStarted: the input files of a job whose state cannot be read are removed.
func TestInputsOfAJobThatIsNotStarted(t *testing.T) {
	for name, damaged := range map[string]bool{"started": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			root, runs := t.TempDir(), 0
			kinds := handle(func(_ context.Context, j *job.Job) ([]byte, error) {
				if runs++; runs == 1 {
					j.Report(job.Progress{State: []byte("s")})
					return nil, job.Interrupted(errors.New("wait"))
				}
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.PutData("in", "text")
				b.PutWithInputs("a", "k", oneInput)
				b.runOne()
				if damaged {
					b.damage("a")
				}
				b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
				b.runOne()
				var found []string
				err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
					if strings.HasPrefix(d.Name(), "job-") {
						found = append(found, path)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if r := b.Record("a"); len(found) != 0 || (r.FailuresTotal == 1) != damaged || (runs == 1) != damaged {
					t.Errorf("folders %v, %d failures after %d runs; want none, one: %t", found, r.FailuresTotal, runs, damaged)
				}
			}, withCache(root, 1<<20))
		})
	}
}
