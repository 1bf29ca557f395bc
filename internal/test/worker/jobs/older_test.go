package jobs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// hiddenPrefix is the start of the names that keys of a record have while a worker runs that
// does not know them: it keeps them as any unknown key.
const hiddenPrefix = "hidden"

// hide gives keys of a job's record such names.
func hide(b *rig.Bed, id string, keys []string) {
	b.T.Helper()
	rename(b, id, func(key string) string {
		if slices.Contains(keys, key) {
			return hiddenPrefix + key
		}
		return key
	})
}

// show gives them their own names again, and removes keys of new workers.
func show(b *rig.Bed, id string, keys []string) {
	b.T.Helper()
	rename(b, id, func(key string) string {
		original, hidden := strings.CutPrefix(key, hiddenPrefix)
		if !hidden && slices.Contains(keys, key) {
			return ""
		}
		return original
	})
}

func rename(b *rig.Bed, id string, to func(key string) string) {
	b.T.Helper()
	blob, _, _ := b.Server.ReadBlob(b.Names.Records, b.BlobOf(id))
	renamed := map[string]*string{}
	for key, value := range blob.Metadata {
		if now := to(key); now != "" {
			renamed[now] = new(value)
		}
	}
	client := b.Account(b.Server.Transport()).Container(b.Names.Records).NewBlobClient(blob.Name)
	if _, err := client.SetMetadata(b.T.Context(), renamed, nil); err != nil {
		b.T.Fatal(err)
	}
}

// newKeys are the keys of a record that older versions do not know, by feature.
var newKeys = map[string][]string{
	"inputs":    {"inputs", "inputlist"},
	"logs":      {"log"},
	"deadlines": {"deadline", "estimate", "movereason"},
	"ledger":    {"ledger", "unledgered", "useful", "redone", "overhead", "evictions", "exits", "nextwrite"},
}

// TestOlderWorkerInBetween: a job runs on a new worker, on a worker without a feature, and on
// a new worker again, also after a replay. No step is repeated, and data of the feature is as it
// was or counts as none.
func TestOlderWorkerInBetween(t *testing.T) {
	all := slices.Concat(slices.Collect(maps.Values(newKeys))...)
	rows := map[string]func(t *testing.T){
		"all":            func(t *testing.T) { olderWorkerInBetween(t, all, false) },
		"after a replay": func(t *testing.T) { olderWorkerInBetween(t, all, true) },
	}
	for feature, keys := range newKeys {
		rows[feature] = func(t *testing.T) { olderWorkerInBetween(t, keys, false) }
	}
	for _, name := range proof.Some(t, 2, slices.Sorted(maps.Keys(rows))) {
		t.Run(name, rows[name])
	}
}

func olderWorkerInBetween(t *testing.T, hidden []string, replays bool) {
	folder := filepath.Join(t.TempDir(), "inputs")
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.CacheInputs = folder
		b.PutData("in", "one")
		inputs, err := json.Marshal([]job.Input{{Container: "data", Blob: "in"}})
		if err != nil {
			t.Fatal(err)
		}
		due := time.Now().Add(time.Hour).UTC()
		e := queue.Envelope{ID: "j", Kind: "work", EnqueuedAt: time.Now(), Inputs: inputs, Deadline: due, Estimate: time.Minute}
		if err := b.Queue.Put(t.Context(), e, 0); err != nil {
			t.Fatal(err)
		}
		work := &rig.Steps{N: 60, Each: time.Second}
		handler := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if found, err := rig.ReadInputs(j); err != nil || found != "in=one;" {
				return nil, job.Permanent(errors.New("the inputs are " + found))
			}
			job.Print(ctx, "stdout", rig.LogLineOf(j.ID, 0))
			if replays && work.Done(j.ID) == 0 {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				_, _ = runSteps(ctx, work, j)
				return nil, job.Permanent(errors.New("out of luck"))
			}
			return runSteps(ctx, work, j)
		})
		kinds := job.Kinds{"work": handler}
		run := func(vm string, kinds job.Kinds) {
			p := b.Start(vm, kinds, func(c *worker.Config) { c.Policy = checkpoint.Policy{Interval: 5 * time.Second} })
			time.Sleep(20 * time.Second)
			p.Stop()
		}
		run("vm_0", kinds)
		before := b.Record("j")
		if replays {
			if before.Status != checkpoint.Poison {
				t.Fatalf("job = %s, want poison", before.Status)
			}
			b.Replay(false, "j")
		}
		check := func(after string) {
			r := b.Record("j")
			if r.Inputs != before.Inputs || r.InputList != before.InputList {
				t.Errorf("after %s the record has inputs %q, want %q", after, r.Inputs, before.Inputs)
			}
			if r.Deadline.Sub(due).Abs() > time.Millisecond || r.Estimate != time.Minute {
				t.Errorf("after %s the record has deadline %s, estimate %s, want %s, 1m", after, r.Deadline, r.Estimate, due)
			}
			b.CheckLog(t, r)
			if len(rig.Texts(b.LogOf(r))) == 0 {
				t.Errorf("after %s the job has no log", after)
			}
		}
		hide(b, "j", hidden)
		run("vm_1", job.Kinds{"work": handler})
		show(b, "j", hidden)
		if f := b.Record("j").Fraction; f <= before.Fraction {
			t.Fatalf("the older worker left the job at %v, want progress since %v", f, before.Fraction)
		}
		check("the older worker")
		b.Start("vm_2", kinds)
		b.WaitDone("j", 10*time.Minute)
		check("the end")
		if n := work.Repeated("j"); n > 0 {
			t.Errorf("%d steps were repeated, want none", n)
		}
	})
}

// runSteps runs steps from the last state. It reads that as a stream, as a handler must of
// which an older worker may run: a body with two states is a stream for that.
func runSteps(ctx context.Context, work *rig.Steps, j *job.Job) ([]byte, error) {
	next := 0
	state, _, err := j.OpenSaved()
	if err != nil {
		return nil, err
	}
	if state != nil {
		data, err := io.ReadAll(state)
		_ = state.Close()
		if err != nil {
			return nil, err
		}
		next = int(binary.BigEndian.Uint32(data))
	}
	return work.RunFrom(ctx, j, next, func(n int) job.Progress {
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
}
