package fleets

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// accountFaults are the faults of one of several accounts.
var accountFaults = map[string]storage.Fault{
	"denies":          {Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}},
	"is busy":         {Refuse: storage.ServerBusy(0)},
	"is broken":       {Refuse: &storage.Error{Status: 500, Code: "InternalError"}},
	"drops":           {DropRequest: true},
	"does not answer": {Before: 10 * time.Minute},
}

// TestAccountFails: an account that fails, or only its blobs, holds up neither the jobs
// of the other nor a worker that starts. Its own jobs are done when it works again.
func TestAccountFails(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	const jobs = 200
	for name, fault := range accountFaults {
		for _, c := range []struct {
			sick         int
			blobs, start bool
		}{{0, false, false}, {0, false, true}, {1, false, false}, {1, false, true}, {1, true, false}} {
			if !*full && (name != "does not answer" && !(name == "denies" && c.blobs) || c.sick == 1 && c.start) {
				continue // in full only
			}
			t.Run(fmt.Sprintf("account %d %s, blobs alone %t, at the start %t", c.sick, name, c.blobs, c.start), func(t *testing.T) {
				rig.Run(t, func(t *testing.T, b *rig.Bed) {
					a := b.AddAccounts(2)
					fail := func() {
						a.Servers[c.sick].OnCall(func(call storage.Call) storage.Fault {
							if c.blobs && call.Service != storage.BlobService {
								return storage.Fault{}
							}
							return fault
						})
					}
					if c.start {
						fail()
					}
					p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, func(c *worker.Config) { c.Concurrency = 8 })
					time.Sleep(90 * time.Second)
					ids := a.IDs("job", jobs)
					if !c.start {
						fail()
					}
					for i := range jobs {
						if c.blobs {
							a.Put(ids[c.sick][i], "echo", "1")
						}
						a.Put(ids[1-c.sick][i], "echo", "1")
					}
					well := a.Servers[1-c.sick]
					began := time.Now()
					b.WaitFor("jobs of the other account", 5*time.Minute, func() bool { return len(well.Messages(b.Names.Queue)) == 0 })
					if took := time.Since(began); took > 15*time.Second {
						t.Errorf("%d jobs of the other account took %s, want at most 15s", jobs, took)
					}
					if c.start && len(p.Log.Find("storage account is not ready; its jobs wait, and those of the other accounts do not")) != 1 {
						t.Error("the log does not have the account that is not ready")
					}
					a.Servers[c.sick].OnCall(nil)
					late := a.IDs("late", 1)[c.sick][0]
					a.Put(late, "echo", "1")
					b.WaitFor("a job of the account that works again", 12*time.Minute, func() bool { return a.IsDone(late) })
					if c.blobs {
						b.WaitFor("all jobs of the account that works again", 12*time.Minute,
							func() bool { return len(a.Servers[c.sick].Messages(b.Names.Queue)) == 0 })
					}
				})
			})
		}
	}
}

// TestAccountsMultiplyTheLimit: with N accounts a fleet does N times the jobs that the
// limit of one account allows. The accounts have equal shares, few calls are refused, and
// a job has the same cost as in one account, 2 + 1/32 calls.
func TestAccountsMultiplyTheLimit(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	tests := []struct{ Accounts, limit int }{{2, 400}}
	if *full {
		tests = []struct{ Accounts, limit int }{{1, 2000}, {2, 2000}, {4, 2000}}
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d accounts of %d calls a second", tt.Accounts, tt.limit), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				a := b.AddAccounts(tt.Accounts)
				after, window := 15*time.Second, time.Duration(repeats(20, 60))*time.Second
				for _, ids := range a.IDs("job", int((after+window)/time.Second)*tt.limit/2) {
					for _, id := range ids {
						a.Put(id, "echo", "1")
					}
				}
				var mu sync.Mutex // guards what follows while calls come
				calls, refused, done := 0, 0, make([]int, tt.Accounts)
				for i, server := range a.Servers {
					server.SetLimits(&storage.Limits{AccountRequests: tt.limit})
					server.OnCall(func(storage.Call) storage.Fault {
						return storage.Fault{Before: 5 * time.Millisecond, After: 5 * time.Millisecond}
					})
					server.OnResult(func(res storage.Result) {
						mu.Lock()
						defer mu.Unlock()
						calls++
						switch {
						case res.Status == 503:
							refused++
						case res.Operation == storage.OpDeleteMessage:
							done[i]++
						}
					})
				}
				for i := range 4 {
					b.Start(fmt.Sprintf("vm_%d", i), job.Kinds{"echo": rig.Echo}, rig.DiscardLog, func(c *worker.Config) {
						c.Concurrency, c.Metadata = 64,
							nil
					})
				}
				time.Sleep(after)
				mu.Lock()
				calls, refused, done = 0, 0, make([]int, tt.Accounts)
				mu.Unlock()
				time.Sleep(window)
				mu.Lock()
				defer mu.Unlock()
				total, least := 0, done[0]
				for _, n := range done {
					total, least = total+n, min(least, n)
				}
				// 2 + 1/32 calls a job.
				used := float64(total) * (2 + 1.0/32) / (window.Seconds() * float64(tt.limit*tt.Accounts))
				t.Logf("%d accounts, %d calls a second each: %.0f jobs a second, %.2f %% of %d calls refused, %.1f %% of the limit used, done "+
					"by account %v",
					tt.Accounts, tt.limit, float64(total)/window.Seconds(), 100*float64(refused)/float64(calls), calls, 100*used, done)
				if each := float64(calls-refused) / float64(total); each > 2.1 {
					t.Errorf("calls for each job = %.3f, want 2 + 1/32, and few more", each)
				}
				if used < 0.75 {
					t.Errorf("calls of jobs that were done = %.1f %% of the limit, want at least 75 %%", 100*used)
				}
				if share := float64(refused) / float64(calls); share > 0.05 {
					t.Errorf("calls refused = %.2f %%, want at most 5 %%", 100*share)
				}
				if float64(least*tt.Accounts) < 0.9*float64(total) {
					t.Errorf("jobs done by account = %v, want equal shares", done)
				}
			})
		})
	}
}

// TestIdlePollsOfAccounts: a worker without work polls the queue of each account once a
// second, and a fleet no more often than five workers. It claims a job of any account
// within about a second. Heartbeats do not grow with the number of accounts.
func TestIdlePollsOfAccounts(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for _, row := range []struct{ accounts, workers int }{{1, 1}, {2, 1}, {4, 1}, {2, 16}, {4, 16}} {
		if !*full && row.accounts == 2 && row.workers > 1 {
			continue // in full only
		}
		t.Run(fmt.Sprintf("%d accounts, %d workers", row.accounts, row.workers), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				a := b.AddAccounts(row.accounts)
				p := idleFleet(b, row.workers)
				for _, server := range a.Servers[1:] {
					server.OnResult(func(r storage.Result) {
						if r.Operation == storage.OpGetMessages && len(r.MessageIDs) > 0 {
							p.claimed <- time.Now()
						}
					})
				}
				time.Sleep(2 * time.Minute) // the workers have counted each other
				var waits []time.Duration
				for i := range repeats(60, 600) {
					time.Sleep(time.Duration(p.random.Int64N(int64(8 * time.Second))))
					begun := time.Now()
					a.Put(fmt.Sprintf("job-%d", i), "echo", "1")
					waits = append(waits, (<-p.claimed).Sub(begun))
				}
				time.Sleep(time.Minute)
				for _, server := range a.Servers {
					server.ResetCounts()
				}
				const window = 15 * time.Minute
				time.Sleep(window)
				var polls, calls int64
				for _, server := range a.Servers {
					for operation, n := range server.Counts() {
						if calls += n; operation == storage.OpGetMessages {
							polls += n
						}
					}
				}
				perSecond := float64(polls) / window.Seconds()
				others := float64(calls-polls) / window.Minutes() / float64(row.workers)
				got := percentilesOf(waits)
				t.Logf("put to claim: mean %s, %s; %.2f polls a second, %.2f other calls a minute and worker", mean(waits).Round(time.Millisecond),
					got, perSecond, others)
				if m := mean(waits); m > 700*time.Millisecond || got.p99 > 1500*time.Millisecond {
					t.Errorf("mean and p99 = %s and %s, want at most 700ms and 1.5s", m, got.p99)
				}
				if most := float64(min(row.workers, 5)*row.accounts) * 1.1; perSecond > most {
					t.Errorf("polls a second = %.2f, want at most %.2f", perSecond, most)
				}
				// Four heartbeats a minute, each with a look at the control document, and five
				// reads of the queues of each account.
				if most := 9 + float64(row.accounts)*5.5; others > most {
					t.Errorf("other calls a minute and worker = %.2f, want at most %.2f", others, most)
				}
			})
		})
	}
}

// TestOnDemandWorkersOfAccounts: a worker that takes from the on-demand queues alone puts
// follow-up jobs in the accounts where they belong, and takes the jobs of an account that was
// not ready when it started.
func TestOnDemandWorkersOfAccounts(t *testing.T) {
	for sick := range 2 {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			a := b.AddAccounts(2)
			a.Servers[sick].OnCall(func(storage.Call) storage.Fault { return accountFaults["is broken"] })
			var mu sync.Mutex // guards what follows
			var children []string
			parent := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for i := range 8 {
					id, err := j.Put(ctx, job.FollowUp{Name: fmt.Sprint(i), Kind: "echo"})
					if err != nil {
						return nil, err
					}
					mu.Lock()
					children = append(children, id)
					mu.Unlock()
				}
				return nil, nil
			})
			b.Start("regular_0", job.Kinds{"parent": parent, "echo": rig.Echo}, rig.TakeOnDemand, rig.DiscardLog)
			time.Sleep(time.Minute)
			a.Servers[sick].OnCall(nil)
			for i, ids := range a.IDs("parent", 1) {
				b.PutOn(a.All.Accounts[i].OnDemand, ids[0], "parent", "")
				b.WaitFor("the job of "+ids[0], 5*time.Minute, func() bool { return a.IsDone(ids[0]) })
			}
			mu.Lock()
			defer mu.Unlock()
			put := 0
			for i, server := range a.Servers {
				put += len(server.Messages(b.Names.Queue))
				for _, m := range server.Messages(b.Names.Queue) {
					if e, err := queue.Decode(m.Text); err != nil || a.Of(e.ID) != i {
						t.Errorf("follow-up job %s is in account %d, want it in %d: %v", e.ID, i, a.Of(e.ID), err)
					}
				}
			}
			if put < 16 || put != len(children) {
				t.Errorf("follow-up jobs on the queues = %d of %d, want 16", put, len(children))
			}
		})
	}
}
