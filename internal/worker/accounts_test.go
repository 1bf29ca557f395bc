package worker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/intake"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/testing/race"
	"github.com/spotworker/spotworker/job"
)

// accounts are the storage accounts of a deployment that has several: that of the testbed
// and further ones.
type accounts struct {
	b       *testbed
	servers []*storage.Server
	all     *deployment.Stores
	lack    map[string]bool // workers that were given the first account alone, by VM
}

// accountName returns the name of an account by its number; empty for the first.
func accountName(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf("further%d", i)
}

// servers returns the emulators of all accounts.
func (b *testbed) servers() []*storage.Server {
	if b.accounts == nil {
		return []*storage.Server{b.server}
	}
	return b.accounts.servers
}

// storesFor returns the stores of the account that has the record of a job, those of the
// first account if none has.
func (b *testbed) storesFor(id string) stores {
	for i, server := range b.servers()[1:] {
		for _, blob := range server.Blobs(b.names.Records) {
			if jobOfBlob(blob.Name) == id && blob.Metadata["status"] != "" {
				return b.connectAt(i+1, b.transport("test"))
			}
		}
	}
	return b.stores
}

// transport sends each call to the account that its path names.
func (a *accounts) transport() policy.Transporter {
	ways := map[string]policy.Transporter{}
	for i, server := range a.servers {
		name := accountName(i)
		if name == "" {
			name = storage.DefaultAccount
		}
		ways[name] = server.Transport()
	}
	return byAccount(ways)
}

// byAccount are the ways to accounts, by their names.
type byAccount map[string]policy.Transporter

func (w byAccount) Do(r *http.Request) (*http.Response, error) {
	account, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return w[account].Do(r)
}

// addAccounts makes so many accounts of the testbed's one, and spreads jobs over them.
func (b *testbed) addAccounts(n int) *accounts {
	b.t.Helper()
	a := b.makeAccounts(n)
	spread := queue.Spread{IDs: n}
	for _, s := range a.all.All() {
		if err := s.Create(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
		spread.Names = append(spread.Names, s.Account.Name())
	}
	if err := a.all.Accounts.Write(b.t.Context(), spread); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// makeAccounts makes so many accounts of the testbed's one. The further ones have no
// queues and containers, and the first does not say that there are several.
func (b *testbed) makeAccounts(n int) *accounts {
	b.t.Helper()
	b.sharded = true
	a := &accounts{b: b, servers: []*storage.Server{b.server}}
	for i := range n - 1 {
		a.servers = append(a.servers, storage.New(storage.Options{Account: accountName(i + 1)}))
	}
	b.accounts = a
	for i, server := range a.servers[1:] {
		if b.recorder != nil {
			b.recorder.watch(server, accountName(i+1))
		}
	}
	a.all = a.connect(n, b.transport("test"), nil, nil)
	return a
}

// connect returns the stores of so many of the accounts.
func (a *accounts) connect(n int, transport policy.Transporter, pressure *intake.Pressure, onEnd func(outage.Call)) *deployment.Stores {
	a.b.t.Helper()
	var all []*azure.Account
	for i := range n {
		all = append(all, a.b.watchedAccountAt(i, transport, pressure, onEnd))
	}
	s := deployment.Join(all, a.b.names)
	for _, in := range s.All() {
		if a.b.chunk > 0 {
			in.Records = in.Records.WithChunks(a.b.chunk)
		}
	}
	return s
}

// join gives a worker its accounts, over its link.
func (a *accounts) join(k *link, c *Config) {
	n := len(a.servers)
	if a.lack[c.Host] {
		n = 1
	}
	blobs := &outage.Blobs{}
	s := a.connect(n, k, c.Pressure, blobs.Ended)
	c.Queue, c.OnDemand, c.Poison, c.Shards = s.Queue, s.OnDemand, s.Poison, s.Jobs
	c.Payloads, c.Records, c.Workers, c.Control, c.Outputs, c.Logs = s.Payloads, s.Records, s.Workers, s.Control, s.Outputs, s.Logs
	c.Spread, c.Blobs = s.Accounts, blobs
	for _, m := range s.More {
		c.More = append(c.More, Account{
			Name: m.In, Queue: m.Queue, Poison: m.Poison, OnDemand: m.OnDemand, Shards: m.Jobs, TakeFrom: []*queue.Queue{m.Queue},
			Payloads: m.Payloads, Records: m.Records, Outputs: m.Outputs, Logs: m.Logs,
		})
	}
}

// put puts a job in the account where its id belongs.
func (a *accounts) put(id, kind, payload string) {
	a.b.t.Helper()
	q, err := a.all.Accounts.Place(id, true)
	if err != nil {
		a.b.t.Fatal(err)
	}
	a.b.putOn(q, id, kind, payload)
}

// of returns the number of the account of a job.
func (a *accounts) of(id string) int { return queue.AccountOf(id, len(a.servers)) }

// isDone reports whether a job is done, by the record in its account.
func (a *accounts) isDone(id string) bool {
	r, err := a.all.All()[a.of(id)].Records.Read(a.b.t.Context(), id)
	return err == nil && r.Status == checkpoint.Done
}

// ids returns so many ids of each account, with that prefix.
func (a *accounts) ids(prefix string, each int) [][]string {
	all := make([][]string, len(a.servers))
	for i, left := 0, each*len(a.servers); left > 0; i++ {
		id := fmt.Sprintf("%s-%d", prefix, i)
		if at := a.of(id); len(all[at]) < each {
			all[at] = append(all[at], id)
			left--
		}
	}
	return all
}

// TestAccounts: all of a job is in the account of its id, follow-up jobs included.
func TestAccounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		a := b.addAccounts(3)
		next := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			_, err := j.Put(ctx, job.FollowUp{Name: "next", Kind: "echo"})
			return nil, err
		})
		p := b.start("vm_0", job.Kinds{"echo": echo, "next": next})
		time.Sleep(10 * time.Second)
		for i, ids := range a.ids("job", 5) {
			for _, id := range ids {
				a.put(id, "next", "1")
			}
			if i == 2 {
				if _, err := a.all.More[1].Account.Queue(b.names.Queue).EnqueueMessage(t.Context(), "unusable", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		records := func() (n int) {
			for i, s := range a.all.All() {
				for r, err := range s.Records.List(t.Context(), "") {
					if err != nil {
						t.Fatal(err)
					}
					if r.Status == checkpoint.Done && a.of(r.ID) == i {
						n++
					}
				}
			}
			return n
		}
		b.waitFor("30 jobs done in their accounts", 30*time.Second, func() bool { return records() == 30 })
		b.waitFor("an unusable message in the poison queue of its account", 30*time.Second, func() bool {
			return len(a.servers[2].Messages(b.names.Poison)) == 1
		})
		if n := len(b.server.Messages(b.names.Poison)); n != 0 {
			t.Errorf("messages on the poison queue of the first account = %d, want none", n)
		}
		if got := strings.Join(queue.Names(p.sources.Taken()), " "); got != "test-jobs further1/test-jobs further2/test-jobs" {
			t.Errorf("jobs are taken from %s, want the queues of all accounts", got)
		}
	})
}

// accountFaults are what happens to one of several accounts.
var accountFaults = map[string]storage.Fault{
	"denies":          {Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}},
	"is busy":         {Refuse: storage.ServerBusy(0)},
	"is broken":       {Refuse: &storage.Error{Status: 500, Code: "InternalError"}},
	"drops":           {DropRequest: true},
	"does not answer": {Before: 10 * time.Minute},
}

// TestAccountFails: an account that fails, or of which only the blobs do, holds up neither
// the jobs of the other nor a worker that starts. Its own jobs are done when it works
// again.
func TestAccountFails(t *testing.T) {
	race.Skip(t)
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
				inBubble(t, func(t *testing.T, b *testbed) {
					a := b.addAccounts(2)
					fail := func() {
						a.servers[c.sick].OnCall(func(call storage.Call) storage.Fault {
							if c.blobs && call.Service != storage.BlobService {
								return storage.Fault{}
							}
							return fault
						})
					}
					if c.start {
						fail()
					}
					p := b.start("vm_0", job.Kinds{"echo": echo}, func(c *Config) { c.Concurrency = 8 })
					time.Sleep(90 * time.Second)
					ids := a.ids("job", jobs)
					if !c.start {
						fail()
					}
					for i := range jobs {
						if c.blobs {
							a.put(ids[c.sick][i], "echo", "1")
						}
						a.put(ids[1-c.sick][i], "echo", "1")
					}
					well := a.servers[1-c.sick]
					began := time.Now()
					b.waitFor("jobs of the other account", 5*time.Minute, func() bool { return len(well.Messages(b.names.Queue)) == 0 })
					if took := time.Since(began); took > 15*time.Second {
						t.Errorf("%d jobs of the other account took %s, want at most 15s", jobs, took)
					}
					if c.start && len(p.log.find("storage account is not ready; its jobs wait, and those of the other accounts do not")) != 1 {
						t.Error("the log does not have the account that is not ready")
					}
					a.servers[c.sick].OnCall(nil)
					late := a.ids("late", 1)[c.sick][0]
					a.put(late, "echo", "1")
					b.waitFor("a job of the account that works again", 12*time.Minute, func() bool { return a.isDone(late) })
					if c.blobs {
						b.waitFor("all jobs of the account that works again", 12*time.Minute, func() bool { return len(a.servers[c.sick].Messages(b.names.Queue)) == 0 })
					}
				})
			})
		}
	}
}

// TestAccountsMultiplyTheLimit: with N accounts a fleet does N times the jobs that the
// limit of one account allows. The accounts have equal shares, few calls are refused, and
// a job costs what it costs in one account, 2 + 1/32 calls.
func TestAccountsMultiplyTheLimit(t *testing.T) {
	race.Skip(t)
	tests := []struct{ accounts, limit int }{{2, 400}}
	if *full {
		tests = []struct{ accounts, limit int }{{1, 2000}, {2, 2000}, {4, 2000}}
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d accounts of %d calls a second", tt.accounts, tt.limit), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *testbed) {
				a := b.addAccounts(tt.accounts)
				after, window := 15*time.Second, time.Duration(repeats(20, 60))*time.Second
				for _, ids := range a.ids("job", int((after+window)/time.Second)*tt.limit/2) {
					for _, id := range ids {
						a.put(id, "echo", "1")
					}
				}
				var mu sync.Mutex // guards what follows while calls come
				calls, refused, done := 0, 0, make([]int, tt.accounts)
				for i, server := range a.servers {
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
					b.start(fmt.Sprintf("vm_%d", i), job.Kinds{"echo": echo}, discardLog, func(c *Config) { c.Concurrency, c.Metadata = 64, nil })
				}
				time.Sleep(after)
				mu.Lock()
				calls, refused, done = 0, 0, make([]int, tt.accounts)
				mu.Unlock()
				time.Sleep(window)
				mu.Lock()
				defer mu.Unlock()
				total, least := 0, done[0]
				for _, n := range done {
					total, least = total+n, min(least, n)
				}
				// 2 + 1/32 calls a job.
				used := float64(total) * (2 + 1.0/32) / (window.Seconds() * float64(tt.limit*tt.accounts))
				t.Logf("%d accounts, %d calls a second each: %.0f jobs a second, %.2f %% of %d calls refused, %.1f %% of the limit used, done by account %v",
					tt.accounts, tt.limit, float64(total)/window.Seconds(), 100*float64(refused)/float64(calls), calls, 100*used, done)
				if each := float64(calls-refused) / float64(total); each > 2.1 {
					t.Errorf("calls for each job = %.3f, want 2 + 1/32, and few more", each)
				}
				if used < 0.75 {
					t.Errorf("calls of jobs that were done = %.1f %% of the limit, want at least 75 %%", 100*used)
				}
				if share := float64(refused) / float64(calls); share > 0.05 {
					t.Errorf("calls refused = %.2f %%, want at most 5 %%", 100*share)
				}
				if float64(least*tt.accounts) < 0.9*float64(total) {
					t.Errorf("jobs done by account = %v, want equal shares", done)
				}
			})
		})
	}
}
