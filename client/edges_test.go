package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// opPeekMessages is the operation that shows the messages at the front of a queue.
const opPeekMessages = "PeekMessages"

// refused is the fault of a call that the account denies.
var refused = storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"}}

// refuse denies the calls of some operations.
func refuse(server *storage.Server, operations ...string) {
	server.OnCall(func(c storage.Call) storage.Fault {
		if slices.Contains(operations, c.Operation) {
			return refused
		}
		return storage.Fault{}
	})
}

// setupTwo returns a deployment over two accounts, in which chosen ids are spread too.
func setupTwo(t *testing.T) (*Client, byAccount) {
	t.Helper()
	servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
	c, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
		MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operate.SpreadOver(t.Context(), c.stores, 2, true); err != nil {
		t.Fatal(err)
	}
	return c, servers
}

// idsOf returns n ids that belong in the account with that number, of two.
func idsOf(account, n int) (ids []string) {
	for i := 0; len(ids) < n; i++ {
		if id := fmt.Sprintf("job-%d", i); queue.AccountOf(id, 2) == account {
			ids = append(ids, id)
		}
	}
	return ids
}

// seedIn writes the record of a job in the account with that number, as a worker leaves it.
func seedIn(t *testing.T, c *Client, account int, id string, status Status) *checkpoint.Claim {
	t.Helper()
	return seedRecord(t, c.accounts[account].stores.Records, id, status)
}

// isPartial demands an error that names one account.
func isPartial(t *testing.T, what string, err error, account string, notDone bool) {
	t.Helper()
	if some, ok := errors.AsType[*AccountsError](err); !ok || !slices.Equal(some.Names, []string{account}) || some.NotDone != notDone {
		t.Errorf("%s = %v, want an error that names account %s, with NotDone %t", what, err, account, notDone)
	}
}

// TestLongListIsNotCutOff: while the caller uses a value no answer is awaited, so a list may
// take as long as it likes; an account that stops answering ends its own part.
func TestLongListIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := setupTwo(t)
		for name, hangs := range map[string]bool{"all answer": false, "the second stops": true} {
			began, n := time.Now(), 0
			var last error
			for _, err := range merged(t.Context(), c, toRead, func(part *account, a *answers, found func(int) bool) error {
				for i := range 5 {
					if !found(i) || a.ctx.Err() != nil { // as the next call of a list would
						return context.Cause(a.ctx)
					}
				}
				if hangs && part != c.accounts[0] {
					select {
					case <-a.ctx.Done():
						return a.ctx.Err()
					case <-time.After(time.Hour):
					}
				}
				return nil
			}) {
				if last = err; err == nil {
					n++
					time.Sleep(accountWait + 5*time.Second)
				}
			}
			if n != 10 {
				t.Errorf("%s: %d values, want 10", name, n)
			}
			if hangs {
				isPartial(t, name, last, "second", false)
			} else if last != nil {
				t.Errorf("%s: %v", name, last)
			}
			if took := time.Since(began); took > 15*accountWait {
				t.Errorf("%s: took %s, want no more than the caller and one wait", name, took)
			}
		}
	})
}

// TestJobInAnotherAccount: the result, the log and the outputs of a job are found in an account
// where its id does not lead to, by every way to read them.
func TestJobInAnotherAccount(t *testing.T) {
	c, _ := setupTwo(t)
	ids := idsOf(0, 70) // they are in the second account
	in := c.accounts[1].stores
	for _, id := range ids[1:] {
		seedIn(t, c, 1, id, StatusDone)
	}
	id := ids[0]
	claim, err := in.Records.Create(t.Context(), checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "m"},
		"worker-1")
	if err != nil {
		t.Fatal(err)
	}
	set := in.Outputs.NewSet(id, 1, claim.Token(), outputs.Limits{Files: 10, Bytes: 1 << 20}, "", nil)
	for _, path := range []string{"a.txt", "b.txt"} {
		if _, err := set.Send(t.Context(), path, 7, strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := set.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := joblog.NewKeeper(in.Logs, joblog.DefaultSize).Open(id, claim.Record().CreatedAt, 1, "worker-1", "")
	for n := range 100 { // more than a record holds
		log.Add(joblog.Stdout, fmt.Appendf(nil, "%100d", n))
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
		f.Outputs, f.Log = checkpoint.Outputs(ref), log.Tail()
		return f
	})
	if err := errors.Join(claim.Commit(t.Context(), []byte("result")), log.WriteLast(t.Context(), time.Minute)); err != nil {
		t.Fatal(err)
	}

	if got, err := c.Result(t.Context(), id); err != nil || string(got) != "result" {
		t.Errorf("Result = %q, %v", got, err)
	}
	if got, err := c.Wait(t.Context(), id); err != nil || string(got) != "result" {
		t.Errorf("Wait = %q, %v", got, err)
	}
	n := 0
	for outcome, err := range c.WaitMany(t.Context(), ids, WaitOptions{}) { // so many are listed
		want := fmt.Sprintf(`{"of":"%s"}`, outcome.Job.ID)
		if outcome.Job.ID == id {
			want = "result"
		}
		if err != nil || outcome.Err != nil || string(outcome.Result) != want {
			t.Fatalf("WaitMany = job %s with %q, %v, %v", outcome.Job.ID, outcome.Result, outcome.Err, err)
		}
		n++
	}
	if n != len(ids) {
		t.Errorf("outcomes = %d, want %d", n, len(ids))
	}
	if l, err := c.Log(t.Context(), id); err != nil || len(l.Lines) != 100 {
		t.Errorf("Log = %d lines, %v, want 100", len(l.Lines), err)
	}
	all, err := c.Outputs(t.Context(), id)
	if err != nil || len(all) != 2 || all[0].Account != in.Account.Endpoint() {
		t.Fatalf("Outputs = %+v, %v, want two in the second account", all, err)
	}
	body, err := c.OpenOutput(t.Context(), all[0])
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	var fetched []string
	selected, err := c.Download(t.Context(), id, t.TempDir(), DownloadOptions{Select: func(o Output) bool { return o.Path == "b.txt" },
		Done: func(o Output, n int64) { fetched = append(fetched, fmt.Sprint(o.Path, " ", n)) }})
	if err != nil || selected != 1 || !slices.Equal(fetched, []string{"b.txt 7"}) {
		t.Errorf("Download = %d, %v with %q, want one of 7 bytes", selected, err, fetched)
	}
}

// TestOutputsErrors: an output that cannot be read is an error, and an output names its
// account only if that is not the first account of the deployment.
func TestOutputsErrors(t *testing.T) {
	b := setup(t)
	claim := b.seed(t, "a", StatusRunning)
	set := b.stores.Outputs.NewSet("a", 1, claim.Token(), outputs.Limits{Files: 10, Bytes: 1 << 20}, "", nil)
	if _, err := set.Send(t.Context(), "x", 1, strings.NewReader("1")); err != nil {
		t.Fatal(err)
	}
	ref, err := set.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Outputs = checkpoint.Outputs(ref); return f })
	if err := claim.Commit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	all, err := b.Outputs(t.Context(), "a")
	if err != nil || len(all) != 1 || all[0].Account != "" {
		t.Fatalf("Outputs = %+v, %v, want one in the first account", all, err)
	}
	if _, err := b.stores.Account.Container(b.stores.Names.Outputs).NewBlobClient(all[0].Blob).Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Download(t.Context(), "a", t.TempDir(), DownloadOptions{}); !errors.Is(err, ErrOutputGone) {
		t.Errorf("Download of an output that is gone = %v, want ErrOutputGone", err)
	}
	if _, err := b.OpenOutput(t.Context(), all[0]); !errors.Is(err, ErrOutputGone) {
		t.Errorf("OpenOutput of an output that is gone = %v, want ErrOutputGone", err)
	}
}

// TestErrorsAreReturned: a call that the account denies is an error of each view, and no empty
// answer.
func TestErrorsAreReturned(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusDone)
	for what, row := range map[string]struct {
		operation string
		view      func(context.Context) error
	}{
		"List": {storage.OpListBlobs, func(ctx context.Context) (last error) {
			for _, err := range b.List(ctx, Filter{}) {
				last = err
			}
			return last
		}},
		"ListPoison": {storage.OpGetMessages, func(ctx context.Context) (last error) {
			for _, err := range b.ListPoison(ctx) {
				last = err
			}
			return last
		}},
		"Result": {storage.OpGetBlob, func(ctx context.Context) error { _, err := b.Result(ctx, "a"); return err }},
		"Queues": {storage.OpGetQueueMetadata, func(ctx context.Context) error { _, err := b.Queues(ctx); return err }},
		"Wait":   {storage.OpGetBlob, func(ctx context.Context) error { _, err := b.Wait(ctx, "a"); return err }},
		"Clean": {storage.OpListBlobs, func(ctx context.Context) error {
			_, err := b.Clean(ctx, CleanOptions{OlderThan: MinCleanAge})
			return err
		}},
		"Orphans": {opPeekMessages, func(ctx context.Context) error { _, err := b.Orphans(ctx, 0); return err }},
		"Waited":  {opPeekMessages, func(ctx context.Context) error { _, err := b.Waited(ctx, b.stores.Queue.Name()); return err }},
	} {
		refuse(b.server, row.operation)
		if err := row.view(t.Context()); !errors.Is(err, ErrDenied) {
			t.Errorf("%s while %s is denied = %v, want ErrDenied", what, row.operation, err)
		}
	}
}

// poisoned puts a message on the poison queue of an account, of a job whose queue is not used any
// more.
func poisoned(t *testing.T, s *deployment.Stores, id string) {
	t.Helper()
	text, err := queue.Envelope{ID: id, Kind: "k"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := queue.Poison{ID: id, Kind: "k", Reason: "no", PoisonedAt: time.Now().UTC(), Origin: "gone", MessageID: "m-" + id, Body: text}
	if err := s.Poison.PutPoison(t.Context(), p, s.Payloads); err != nil {
		t.Fatal(err)
	}
}

// again opens a client of the same deployment, as a program that starts.
func (b *rig) again(t *testing.T) *Client {
	t.Helper()
	c, err := Open(Options{ConnectionString: b.server.ConnectionString(), Transport: b.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReplayAndRequeueOverAllQueues: a program that starts reads how many queues there are before
// it puts messages.
func TestReplayAndRequeueOverAllQueues(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, b *rig, ids []string) error{
		"replay": func(t *testing.T, b *rig, ids []string) error {
			for _, id := range ids {
				poisoned(t, b.stores.Stores, id)
			}
			return b.again(t).Replay(t.Context(), Selection{All: true}, ReplayOptions{}, func(r ActionResult) error { return r.Err })
		},
		"requeue": func(t *testing.T, b *rig, ids []string) error {
			for _, id := range ids {
				b.seed(t, id, StatusOpen)
			}
			reader, c := b.again(t), b.again(t)
			found, err := reader.Orphans(t.Context(), 0)
			if err != nil {
				return err
			}
			for _, o := range found.Jobs {
				if r := c.Requeue(t.Context(), o, RequeueOptions{}); r.Err != nil {
					return r.Err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			shards := queue.NewShards(b.stores.Names.Queue, b.stores.Account.Queue)
			if err := operate.Resize(t.Context(), shards, 4, 0, func(int) {}); err != nil {
				t.Fatal(err)
			}
			ids := idsOf(0, 20)
			if err := act(t, b, ids); err != nil {
				t.Fatal(err)
			}
			n := 0
			for i, q := range shards.All() {
				for _, m := range b.server.Messages(q.Name()) {
					if e, err := queue.Decode(m.Text); err != nil || queue.ShardOf(e.ID, 4) != i {
						t.Errorf("job %s is on %s, %v", e.ID, q.Name(), err)
					}
					n++
				}
			}
			if n != len(ids) {
				t.Errorf("messages = %d, want %d", n, len(ids))
			}
		})
	}
}

// TestRequeueOnDemand: the message goes where it was asked for.
func TestRequeueOnDemand(t *testing.T) {
	b := setup(t)
	b.seed(t, "a", StatusOpen)
	found, err := b.Orphans(t.Context(), 0)
	if err != nil || len(found.Jobs) != 1 {
		t.Fatalf("Orphans = %+v, %v", found, err)
	}
	if r := b.Requeue(t.Context(), found.Jobs[0], RequeueOptions{OnDemand: true}); r.Err != nil || r.Action != Requeued {
		t.Fatalf("Requeue = %+v", r)
	}
	if n := len(b.server.Messages(b.stores.OnDemand.Name())); n != 1 {
		t.Errorf("messages on the on-demand queue = %d, want 1", n)
	}
}

// TestReplayOptions: from scratch and the kind of other programs' messages reach the replay.
func TestReplayOptions(t *testing.T) {
	b := setup(t)
	claim := b.seed(t, "a", StatusRunning)
	if err := claim.Poison(t.Context(), checkpoint.Snapshot{State: []byte("half"), Fraction: 0.5}, "no"); err != nil {
		t.Fatal(err)
	}
	poisoned(t, b.stores.Stores, "a")
	p := queue.Poison{Reason: "no kind", PoisonedAt: time.Now().UTC(), Origin: b.stores.Queue.Name(),
		MessageID: "m", Body: "not a job of ours"}
	if err := b.stores.Poison.PutPoison(t.Context(), p, b.stores.Payloads); err != nil {
		t.Fatal(err)
	}
	var actions []Action
	err := b.Replay(t.Context(), Selection{All: true}, ReplayOptions{FromScratch: true, DefaultKind: "k"}, func(r ActionResult) error {
		actions = append(actions, r.Action)
		return nil
	})
	if err != nil || !slices.Equal(actions, []Action{Replayed, Replayed}) {
		t.Errorf("Replay = %v, %v, want both replayed", actions, err)
	}
	if j, err := b.Get(t.Context(), "a"); err != nil || j.StateSize != 0 || j.Status != StatusOpen {
		t.Errorf("job = %s with a state of %d bytes, %v, want it open without one", j.Status, j.StateSize, err)
	}
}

// TestNamesOfAReplay: each id that the poison queue does not have is reported; while an account
// does not answer it may be there.
func TestNamesOfAReplay(t *testing.T) {
	c, servers := setupTwo(t)
	poisoned(t, c.accounts[0].stores, "in-home")
	run := func() (got map[string]Action, err error) {
		got = map[string]Action{}
		err = c.Purge(t.Context(), Selection{IDs: []string{"in-home", "x", "y"}}, func(r ActionResult) error {
			got[r.ID] = r.Action
			return nil
		})
		return got, err
	}
	refuse(servers["second"], storage.OpGetMessages)
	got, err := run()
	isPartial(t, "Purge", err, "second", true)
	if got["in-home"] != Purged || got["x"] != Failed || got["y"] != Failed {
		t.Errorf("purge while an account refuses = %v, want one purged and the others failed", got)
	}
	servers["second"].OnCall(nil)
	if got, err = run(); err != nil || len(got) != 3 || got["x"] != NotPoison || got["in-home"] != NotPoison {
		t.Errorf("purge again = %v, %v, want none found", got, err)
	}
	poisoned(t, c.accounts[0].stores, "again")
	stop := errors.New("stop")
	if err := c.Purge(t.Context(), Selection{All: true}, func(ActionResult) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("purge whose report fails = %v, want that error", err)
	}
}

// TestFindPoisonBehindTheFront: a message is found although the service shows only the 32 before
// it, and is visible afterwards.
func TestFindPoisonBehindTheFront(t *testing.T) {
	b := setup(t)
	for i := range 40 {
		poisoned(t, b.stores.Stores, fmt.Sprintf("job-%d", i))
	}
	if m, err := b.FindPoison(t.Context(), "job-39"); err != nil || m.JobID != "job-39" {
		t.Errorf("FindPoison = %+v, %v", m, err)
	}
	if _, err := b.FindPoison(t.Context(), "job-40"); !errors.Is(err, ErrNotPoison) {
		t.Errorf("FindPoison of another = %v, want ErrNotPoison", err)
	}
}

// TestOrphansOfTheOtherAccount: they come with an error that names the account which could not be
// read.
func TestOrphansOfTheOtherAccount(t *testing.T) {
	c, servers := setupTwo(t)
	seedIn(t, c, 0, "a", StatusOpen)
	refuse(servers["second"], storage.OpListBlobs)
	found, err := c.Orphans(t.Context(), 0)
	isPartial(t, "Orphans", err, "second", false)
	if found == nil || len(found.Jobs) != 1 {
		t.Errorf("orphans = %+v, want that of the first account", found)
	}
}

// TestCleanOfAccounts: the counts include all accounts, an account that cannot be cleaned is
// named, and a dry run removes nothing.
func TestCleanOfAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := setupTwo(t)
		for account := range 2 {
			for i, id := range idsOf(account, 3) {
				seedIn(t, c, account, id, []Status{StatusDone, StatusCancelled, StatusOpen}[i])
			}
		}
		time.Sleep(MinCleanAge)
		o := CleanOptions{OlderThan: MinCleanAge, DryRun: true}
		for range 2 { // nothing was removed by the first
			if r, err := c.Clean(t.Context(), o); err != nil || r.Read != 6 || r.Done != 2 || r.Cancelled != 2 {
				t.Errorf("dry run = %+v, %v, want 4 of 6", r, err)
			}
		}
		for _, s := range []Status{StatusPoison, StatusOpen, StatusRunning} {
			if _, err := c.Clean(t.Context(), CleanOptions{OlderThan: MinCleanAge, Status: []Status{s}}); err == nil {
				t.Errorf("clean of jobs that are %s is not refused", s)
			}
		}
		refuse(servers["second"], storage.OpListBlobs)
		o.DryRun = false
		r, err := c.Clean(t.Context(), o)
		isPartial(t, "Clean", err, "second", true)
		if r.Done != 1 || r.Cancelled != 1 {
			t.Errorf("clean of the first account = %+v, want two jobs", r)
		}
		refuse(servers["second"], storage.OpDeleteBlob)
		failed := map[string]bool{}
		o.Failed = func(id string, _ error) { failed[id] = true }
		if r, err := c.Clean(t.Context(), o); err != nil || r.Failed != 2 || len(failed) != 2 || r.Done+r.Cancelled != 0 {
			t.Errorf("clean while removing is denied = %+v, %v with failures of %v, want two failures", r, err, failed)
		}
		servers["second"].OnCall(nil)
		if r, err := c.Clean(t.Context(), o); err != nil || r.Done+r.Cancelled != 2 || r.Failed != 0 {
			t.Errorf("clean again = %+v, %v, want the other two jobs", r, err)
		}
	})
}

// TestCleanLooksAtAllQueues: a program that starts reads how many queues there are before it
// rules out that old messages wait.
func TestCleanLooksAtAllQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		shards := queue.NewShards(b.stores.Names.Queue, b.stores.Account.Queue)
		if err := operate.Resize(t.Context(), shards, 3, 0, func(int) {}); err != nil {
			t.Fatal(err)
		}
		if err := shards.At(2).Put(t.Context(), queue.Envelope{ID: "waits", Kind: "k"}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(MinCleanAge)
		if _, err := b.again(t).Clean(t.Context(), CleanOptions{OlderThan: MinCleanAge}); !errors.Is(err, ErrBacklog) {
			t.Errorf("Clean with an old message on the third queue = %v, want ErrBacklog", err)
		}
	})
}

// TestCancelLooksAtAllQueues: a job on a further queue is cancelled, and known only leaves it
// alone.
func TestCancelLooksAtAllQueues(t *testing.T) {
	b := setup(t)
	shards := queue.NewShards(b.stores.Names.Queue, b.stores.Account.Queue)
	if err := operate.Resize(t.Context(), shards, 3, 0, func(int) {}); err != nil {
		t.Fatal(err)
	}
	if err := shards.At(2).Put(t.Context(), queue.Envelope{ID: "waits", Kind: "k"}, 0); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		known bool
		want  Action
	}{{true, Unknown}, {false, Cancelled}} {
		err := b.again(t).Cancel(t.Context(), []string{"waits"}, CancelOptions{KnownOnly: row.known}, func(r ActionResult) error {
			if r.Action != row.want || row.want == Unknown != errors.Is(r.Err, ErrNotFound) {
				t.Errorf("cancel with known only %t = %s, %v, want %s", row.known, r.Action, r.Err, row.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilterBounds: a bound itself is left out.
func TestFilterBounds(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		after, before time.Time
		want          bool
	}{
		{time.Time{}, time.Time{}, true}, {at, time.Time{}, false}, {time.Time{}, at, false},
		{at.Add(-1), at.Add(1), true}, {at.Add(1), time.Time{}, false}, {time.Time{}, at.Add(-1), false},
	} {
		if got := within(at, row.after, row.before); got != row.want {
			t.Errorf("within(%s, %s) = %t, want %t", row.after, row.before, got, row.want)
		}
	}
}

// TestFewerAccountsThanSpread: a client that was given fewer accounts than jobs are spread over
// has a problem, in Accounts and in Queues.
func TestFewerAccountsThanSpread(t *testing.T) {
	_, servers := setupTwo(t)
	alone, err := Open(Options{ConnectionString: servers["home"].ConnectionString(), Transport: servers})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := alone.Accounts(t.Context()); err != nil || a.Problem == nil || len(a.Spread) != 2 {
		t.Errorf("Accounts = %+v, %v, want a problem", a, err)
	}
	if q, err := alone.Queues(t.Context()); err != nil || q.Problem == nil {
		t.Errorf("Queues = %+v, %v, want a problem", q, err)
	}
}

// TestEndOfContext: its cause is the error, even if some data was read.
func TestEndOfContext(t *testing.T) {
	c, servers := setupTwo(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	servers["second"].OnCall(func(storage.Call) storage.Fault { cancel(enough); return storage.Fault{} })
	if _, err := c.Orphans(ctx, 0); !errors.Is(err, enough) {
		t.Errorf("Orphans whose context ends = %v, want its cause", err)
	}
}

// TestFindNamesTheAccount: a job that is in no account that answers is not called missing.
func TestFindNamesTheAccount(t *testing.T) {
	c, servers := setupTwo(t)
	refuse(servers["second"], storage.OpGetBlobProperties, storage.OpGetBlob)
	for _, id := range append(idsOf(0, 1), idsOf(1, 1)...) {
		if _, err := c.Get(t.Context(), id); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("Get of %s while an account refuses = %v, want that error", id, err)
		}
	}
}

// TestWaitFollowed: workers that do not follow are an error, and the reason is recorded.
func TestWaitFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s, err := b.Pause(t.Context(), nil, SteerOptions{Reason: "maintenance"})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := b.Steering(t.Context()); err != nil || found.Paused == nil || found.Paused.Reason != "maintenance" {
			t.Errorf("Steering = %+v, %v, want the reason", found.Paused, err)
		}
		refuse(b.server, storage.OpListBlobs)
		if err := b.WaitFollowed(t.Context(), s, func([]string) {}); !errors.Is(err, ErrDenied) {
			t.Errorf("WaitFollowed while heartbeats cannot be listed = %v, want ErrDenied", err)
		}
	})
}
