package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// changes are the methods that change something or read several things, each as a user would
// call it. The jobs are from varied.
func (b *rig) changes(t *testing.T) map[string]func(context.Context) error {
	result := func(to *error) func(ActionResult) error {
		return func(r ActionResult) error { *to = cmp.Or(*to, r.Err); return nil }
	}
	steer := func(do func(context.Context, []string, SteerOptions) (Steered, error), names ...string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := do(ctx, names, SteerOptions{}); return err }
	}
	return map[string]func(context.Context) error{
		"Log":     func(ctx context.Context) error { _, err := b.Log(ctx, "done"); return err },
		"LogEnd":  func(ctx context.Context) error { _, err := b.LogEnd(ctx, "done"); return err },
		"Outputs": func(ctx context.Context) error { _, err := b.Outputs(ctx, "done"); return err },
		"Download": func(ctx context.Context) error {
			_, err := b.Download(ctx, "done", t.TempDir(), DownloadOptions{})
			return err
		},
		"List": func(ctx context.Context) (err error) {
			for _, listed := range b.List(ctx, Filter{}) {
				err = cmp.Or(err, listed)
			}
			return err
		},
		"Result": func(ctx context.Context) error { _, err := b.Result(ctx, "done"); return err },
		"Wait":   func(ctx context.Context) error { _, err := b.Wait(ctx, "done"); return err },
		"WaitMany": func(ctx context.Context) (err error) {
			for o, ended := range b.WaitMany(ctx, []string{"done"}, WaitOptions{}) {
				err = cmp.Or(err, ended, o.Err)
			}
			return err
		},
		"PeekPoison": func(ctx context.Context) error { _, _, err := b.PeekPoison(ctx); return err },
		"PoisonDetails": func(ctx context.Context) error {
			m, err := b.FindPoison(ctx, "poison")
			if err == nil {
				var d PoisonDetails
				d, err = b.PoisonDetails(ctx, m)
				if err == nil && (d.Job == nil || d.Job.Status != StatusPoison) {
					t.Errorf("details = %+v, want the job's record", d)
				}
			}
			return err
		},
		"ListPoison": func(ctx context.Context) (err error) {
			for _, listed := range b.ListPoison(ctx) {
				err = cmp.Or(err, listed)
			}
			return err
		},
		"Replay": func(ctx context.Context) (err error) {
			return cmp.Or(b.Replay(ctx, Selection{All: true}, ReplayOptions{}, result(&err)), err)
		},
		"Purge": func(ctx context.Context) (err error) {
			return cmp.Or(b.Purge(ctx, Selection{IDs: []string{"poison"}}, result(&err)), err)
		},
		"Cancel": func(ctx context.Context) (err error) {
			return cmp.Or(b.Cancel(ctx, []string{"open", "waits"}, CancelOptions{}, result(&err)), err)
		},
		"Clean": func(ctx context.Context) (err error) {
			report, cleaned := b.Clean(ctx, CleanOptions{OlderThan: MinCleanAge, Failed: func(_ string, failed error) { err = cmp.Or(err, failed) }})
			if failed := err != nil; failed != (report.Failed > 0) {
				t.Errorf("Clean reports %d failures, and says %v", report.Failed, err)
			}
			return cmp.Or(cleaned, err)
		},
		"Orphans": func(ctx context.Context) error { _, err := b.Orphans(ctx, time.Hour); return err },
		"Requeue": func(ctx context.Context) error {
			found, err := b.Orphans(ctx, time.Hour)
			if err != nil {
				return err
			}
			if len(found.Jobs) != 1 {
				t.Errorf("%d orphans, want the open job", len(found.Jobs))
			}
			err = b.CheckRequeue(ctx, found.Jobs[0], RequeueOptions{})
			return cmp.Or(err, b.Requeue(ctx, found.Jobs[0], RequeueOptions{}).Err)
		},
		"Steering":   func(ctx context.Context) error { _, err := b.Steering(ctx); return err },
		"Pause":      steer(b.Pause),
		"Drain":      steer(b.Drain, "w-1"),
		"Quarantine": steer(b.Quarantine, "vm"),
		"Workers":    func(ctx context.Context) error { _, err := b.Workers(ctx); return err },
		"Worker":     func(ctx context.Context) error { _, err := b.Worker(ctx, "w-1"); return err },
		"Waited":     func(ctx context.Context) error { _, err := b.Waited(ctx, b.stores.Names.Queue); return err },
		"Waiting":    func(ctx context.Context) error { _, err := b.Waiting(ctx); return err },
		"Queues":     func(ctx context.Context) error { _, err := b.Queues(ctx); return err },
		"Put":        func(ctx context.Context) error { _, err := b.Put(ctx, Spec{ID: "new", Kind: "k"}); return err },
		"PutMany": func(ctx context.Context) error {
			jobs := func(yield func(Spec, error) bool) { yield(Spec{ID: "new", Kind: "k"}, nil) }
			var unchecked error
			summary, err := b.PutMany(ctx, jobs, PutOptions{Unchecked: func(err error) { unchecked = err }})
			if err == nil && summary.Failed > 0 {
				err = fmt.Errorf("%d failed", summary.Failed)
			}
			return cmp.Or(err, unchecked)
		},
	}
}

// varied leaves a job that is done with a log and an output, a job that was dead-lettered, an open
// job without a message, a waiting job, and a worker.
func (b *rig) varied(t *testing.T) {
	t.Helper()
	claim := b.seed(t, "done", StatusRunning)
	set := b.stores.Outputs.NewSet("done", 1, claim.Token(), outputs.Limits{Files: 10, Bytes: 1 << 20}, "", nil)
	if _, err := set.Send(t.Context(), "x", 1, strings.NewReader("1")); err != nil {
		t.Fatal(err)
	}
	ref, err := set.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := joblog.NewKeeper(b.stores.Logs, joblog.DefaultSize).Open("done", claim.Record().CreatedAt, 1, "worker-1", "")
	for n := range 100 { // more than a record holds
		log.Add(joblog.Stdout, fmt.Appendf(nil, "%100d", n))
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
		f.Outputs, f.Log = checkpoint.Outputs(ref), log.Tail()
		return f
	})
	if err := cmp.Or(claim.Commit(t.Context(), []byte("1")), log.WriteLast(t.Context(), time.Minute)); err != nil {
		t.Fatal(err)
	}
	b.giveUp(t, "poison")
	b.seed(t, "open", StatusOpen)
	time.Sleep(MinCleanAge)
	if err := b.stores.Queue.Put(t.Context(), queue.Envelope{ID: "waits", Kind: "k"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.stores.Workers.Write(t.Context(), presence.Presence{Worker: "w-1", Machine: presence.Machine{VM: "w"}, State: "process",
		Steered: true}); err != nil {
		t.Fatal(err)
	}
}

// TestEveryRefusalIsReported refuses each single storage call of a method. The method reports it
// by its error or for one job, unless quiet lists the call.
func TestEveryRefusalIsReported(t *testing.T) {
	// How many queues there are: the first is always right. Put may lack the right to read the
	// record of an id, and Cancel the right to see waiting messages, which its detail says.
	// Messages that a list claimed stay hidden for two minutes. The number of poison messages counts
	// only if the message is not at the front.
	numbers := []string{"GetQueueMetadata spotworker-jobs"}
	quiet := map[string][]string{"PutMany": numbers, "Requeue": numbers, "Replay": numbers,
		"Put": append(numbers, "GetBlobProperties spotworker-jobs"),
		"Cancel": append(numbers, "GetQueueMetadata spotworker-jobs-first", "GetQueueMetadata spotworker-jobs-ondemand",
			"PeekMessages spotworker-jobs", "PeekMessages spotworker-jobs-first", "PeekMessages spotworker-jobs-ondemand"),
		"ListPoison":    {"UpdateMessage spotworker-jobs-poison"},
		"PoisonDetails": {"GetQueueMetadata spotworker-jobs-poison"}}
	for name := range (&rig{Client: &Client{}}).changes(t) {
		t.Run(name, func(t *testing.T) {
			for at, reached := 1, true; reached; at++ {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t)
					b.varied(t)
					var mu sync.Mutex // guards calls and what
					calls, what := 0, ""
					b.server.OnCall(func(c storage.Call) storage.Fault {
						mu.Lock()
						defer mu.Unlock()
						if calls++; calls != at {
							return storage.Fault{}
						}
						what = fmt.Sprintf("%s %s%s", c.Operation, c.Container, c.Queue)
						return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
					})
					err := b.changes(t)[name](t.Context())
					mu.Lock()
					defer mu.Unlock()
					reached = calls >= at
					switch {
					case at == 1 && !reached:
						t.Error("there is no call")
					case !reached && err != nil:
						t.Errorf("without a refusal: %v", err)
					case reached && err == nil && !slices.Contains(quiet[name], what):
						t.Errorf("call %d, %s: it was refused, and nothing is reported", at, what)
					}
				})
			}
		})
	}
}
