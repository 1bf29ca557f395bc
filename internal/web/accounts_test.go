package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/operate/actions"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// pair is a page of a deployment over two accounts with two queues each, and no worker.
type pair struct {
	*rig
	servers []*storage.Server
	stores  *deployment.Deployment
	ids     [2][]string // chosen ids that belong in each account
}

func setupPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	var accounts []*azure.Account
	for i := range 2 {
		p.servers = append(p.servers, storage.New(storage.Options{Account: fmt.Sprintf("account%d", i)}))
	}
	transport := p.servers[0].TransportWith(p.servers[1])
	for _, server := range p.servers {
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		accounts = append(accounts, account)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	p.stores = deployment.Join(accounts, names)
	if _, err := operate.SpreadOver(t.Context(), p.stores, 2, true); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.stores.Accounts {
		if err := operate.Resize(t.Context(), s.Jobs, 2, 0, func(int) {}); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; len(p.ids[0]) < 4 || len(p.ids[1]) < 4; i++ {
		id := fmt.Sprintf("job-%d", i)
		p.ids[queue.AccountOf(id, 2)] = append(p.ids[queue.AccountOf(id, 2)], id)
	}
	c, err := client.Open(client.Options{ConnectionString: p.servers[0].ConnectionString(),
		MoreConnectionStrings: []string{p.servers[1].ConnectionString()}, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	p.rig = setupOf(t, Config{Title: "test", Client: c, Explain: error.Error, Every: time.Hour, AllowChanges: true, Control: "control",
		Read: func(ctx context.Context, each func(client.Job)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c, each)
		}})
	return p
}

// sick makes an account refuse all calls.
func (p *pair) sick(account int) {
	p.servers[account].OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationFailure"}}
	})
}

// well ends that.
func (p *pair) well(account int) {
	p.servers[account].OnCall(func(storage.Call) storage.Fault { return storage.Fault{} })
}

// reread makes the page read the deployment again.
func (p *pair) reread() {
	_, next := p.feed.now()
	p.feed.again()
	<-next
}

// work writes the record of a job as a worker leaves it that runs it.
func (p *pair) work(t *testing.T, account int, id string) *checkpoint.Claim {
	t.Helper()
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id}
	claim, err := p.stores.Accounts[account].Records.Create(t.Context(), d, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// giveUp writes record and poison message of a job that came from a queue.
func (p *pair) giveUp(t *testing.T, account int, id, origin string) {
	t.Helper()
	s := p.stores.Accounts[account]
	err := p.work(t, account, id).Poison(t.Context(), checkpoint.Snapshot{}, "no such frame")
	var text string
	if err == nil {
		text, err = queue.Envelope{ID: id, Kind: "k"}.Encode()
	}
	if err == nil {
		err = s.Poison.PutPoison(t.Context(), queue.Poison{ID: id, Kind: "k", Reason: "no such frame", PoisonedAt: time.Now().UTC(),
			Worker: "worker-1", Origin: origin, MessageID: "m-" + id, Body: text}, s.Payloads)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// idsOn are the jobs with messages on a queue.
func (p *pair) idsOn(t *testing.T, account int, on *queue.Queue) (ids []string) {
	t.Helper()
	for _, m := range p.servers[account].Messages(path.Base(on.Name())) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

func (p *pair) status(t *testing.T, account int, id string) checkpoint.Status {
	t.Helper()
	r, err := p.stores.Accounts[account].Records.Read(t.Context(), id)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatal(err)
	}
	return r.Status
}

// TestCancelInTwoAccounts: the page cancels a job wherever it is, also a job that waits on a
// further queue or on the on-demand queue. While an account does not answer, question and
// outcome name it, and the other account's jobs are cancelled.
func TestCancelInTwoAccounts(t *testing.T) {
	p := setupPair(t)
	here, there := p.ids[0], p.ids[1]
	p.work(t, 1, there[0])
	wantText(t, "the outcome", p.confirm(t, "/change?do=cancel&id="+there[0]), "Done.", "1 cancelled")
	if p.status(t, 1, there[0]) != checkpoint.Cancelled || p.status(t, 0, there[0]) != "" {
		t.Error("the job is not cancelled in the account of its record alone")
	}
	for _, waits := range []struct {
		id string
		on *queue.Queue
	}{{there[1], p.stores.Accounts[1].Jobs.At(1)}, {there[2], p.stores.Accounts[1].OnDemand}} {
		if err := waits.on.Put(t.Context(), queue.Envelope{ID: waits.id, Kind: "k"}, 0); err != nil {
			t.Fatal(err)
		}
		wantText(t, "a job on "+waits.on.Name(), p.confirm(t, "/change?do=cancel&id="+waits.id), "Done.", "1 cancelled")
		if p.status(t, 1, waits.id) != checkpoint.Cancelled {
			t.Errorf("the job on %s is not cancelled", waits.on.Name())
		}
	}

	p.work(t, 0, here[0])
	p.work(t, 1, there[3])
	selection := selectionOf(url.Values{"kind": {"k"}}).CancelAddress()
	page, _ := p.ask(t, selection)
	wantText(t, "the question", page, "Cancel 2 jobs: 0 open, 2 running?")
	p.sick(1)
	page, fields := p.ask(t, selection)
	wantText(t, "the question without an account", page, "Cancel 1 jobs: 0 open, 1 running?", "account1", "jobs in it are not cancelled")
	wantText(t, "the outcome without an account", p.made(t, p.post(t, "/change", fields)), "1 cancelled", `role="alert"`, "account1")
	page, _ = p.ask(t, "/change?do=cancel&id="+there[3])
	wantText(t, "a job that cannot be read", page, "This cannot be done", "account1")
	p.well(1)
	if p.status(t, 0, here[0]) != checkpoint.Cancelled || p.status(t, 1, there[3]) != checkpoint.Running {
		t.Errorf("the jobs are %s and %s, want the first cancelled alone", p.status(t, 0, here[0]), p.status(t, 1, there[3]))
	}
}

// TestPoisonInTwoAccounts: jobs go back to the queue of their account that they came from. While an
// account does not answer, question and outcome name it.
func TestPoisonInTwoAccounts(t *testing.T) {
	p := setupPair(t)
	here, there := p.ids[0], p.ids[1]
	first, second := p.stores.Accounts[0], p.stores.Accounts[1]
	p.giveUp(t, 0, here[0], first.Jobs.At(0).Name())
	p.giveUp(t, 1, there[0], second.OnDemand.Name())
	p.giveUp(t, 1, there[1], second.Jobs.At(1).Name())
	p.giveUp(t, 1, there[2], second.Jobs.At(0).Name())
	p.reread()

	wantText(t, "a moved job", p.confirm(t, "/change?do=replay&id="+there[0]), "Done.", "1 replayed")
	if on := p.idsOn(t, 1, second.OnDemand); !slices.Equal(on, []string{there[0]}) {
		t.Errorf("the on-demand queue has %q, want the job that came from it", on)
	}
	p.sick(1)
	for _, do := range []string{"replay", "purge"} {
		page, _ := p.ask(t, "/change?do="+do)
		wantText(t, do+" of all", page, "about 1 messages?", "Not counted, and concerned too if it answers again", "account1")
	}
	wantText(t, "the outcome", p.confirm(t, "/change?do=replay"), "1 replayed", `role="alert"`, "account1")
	wantText(t, "a job of it", p.confirm(t, "/change?do=purge&id="+there[1]), "1 failed", `role="alert"`, "account1")
	p.well(1)
	if on := p.idsOn(t, 0, first.Jobs.At(0)); !slices.Equal(on, []string{here[0]}) {
		t.Errorf("the first account's queue has %q, want its job", on)
	}
	v, _ := p.feed.now()
	for range 3 { // the page may have begun a read during the outage
		p.reread()
		v, _ = p.feed.now()
	}
	if len(v.givenUp) != 1 || len(v.givenUp[0].IDs) != 2 {
		t.Fatalf("the page has the groups %+v, want one with the two jobs that are left", v.givenUp)
	}
	wantText(t, "a group", p.confirm(t, "/change?do=replay&group="+groupKey(v.givenUp[0])), "2 replayed")
	for shard, id := range []string{there[2], there[1]} {
		if on := p.idsOn(t, 1, second.Jobs.At(shard)); !slices.Equal(on, []string{id}) {
			t.Errorf("queue %d of the second account has %q, want the job that came from it", shard, on)
		}
	}
}

// TestPagesWithoutAnAccount: while an account does not answer, each page names it, and none says that
// there is nothing.
func TestPagesWithoutAnAccount(t *testing.T) {
	p := setupPair(t)
	p.giveUp(t, 1, p.ids[1][0], p.stores.Accounts[1].Jobs.At(0).Name())
	nothing := []string{"Nothing here yet", "No job was given up", "No problems found"}
	for _, address := range []string{"/", "/jobs", "/workers", "/poison", "/costs"} {
		for account, name := range []string{"account0", "account1"} {
			p.sick(account)
			for range 2 { // the page may have begun a read before
				p.reread()
			}
			page := p.get(t, address).Body.String()
			wantText(t, address+" without "+name, page, "storage account "+name+" cannot be read")
			for _, text := range nothing {
				if strings.Contains(page, text) {
					t.Errorf("%s without %s says %q", address, name, text)
				}
			}
			p.well(account)
		}
		for range 2 {
			p.reread()
		}
		if page := p.get(t, address).Body.String(); strings.Contains(page, "cannot be read") {
			t.Errorf("%s still names an account that answers", address)
		}
	}
}

// TestRequeueInTwoAccounts: a job without a message gets one in its own account. A job whose message
// is on the on-demand queue has one.
func TestRequeueInTwoAccounts(t *testing.T) { synctest.Test(t, requeueInTwoAccounts) }

func requeueInTwoAccounts(t *testing.T) {
	p := setupPair(t)
	second := p.stores.Accounts[1]
	moved, lost := p.ids[1][0], p.ids[1][1]
	for _, id := range []string{moved, lost} {
		claim := p.work(t, 1, id)
		claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.MoveReason = "it was interrupted 3 times"; return f })
		if err := claim.Release(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.OnDemand.Put(t.Context(), queue.Envelope{ID: moved, Kind: "k", Resume: true}, 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * actions.OrphanIdle)
	page, _ := p.ask(t, "/change?do=requeue&id="+moved)
	wantText(t, "a job with a message", page, "not among the jobs that orphans list shows")
	p.sick(0)
	page, fields := p.ask(t, "/change?do=requeue&id="+lost)
	wantText(t, "the question", page, "Put a new message for job "+lost+"?", "it was interrupted 3 times")
	fields.Set("ondemand", "1")
	wantText(t, "the outcome", p.made(t, p.post(t, "/change", fields)), "Done.", "1 requeued")
	if on := p.idsOn(t, 1, second.OnDemand); !slices.Equal(on, []string{moved, lost}) {
		t.Errorf("the on-demand queue has %q, want both jobs", on)
	}
	p.sick(1)
	p.well(0)
	page, _ = p.ask(t, "/change?do=requeue&id="+lost)
	wantText(t, "a job that cannot be found", page, "account1")
}

// TestPutInTwoAccounts: a job of the form goes to the account and the queue of its id.
func TestPutInTwoAccounts(t *testing.T) {
	p := setupPair(t)
	_, fields := p.ask(t, "/put")
	fields.Set("kind", "k")
	for account, s := range p.stores.Accounts {
		id := p.ids[account][0]
		fields.Set("id", id)
		wantText(t, "the outcome", p.made(t, p.post(t, "/put", fields)), "Done.", "enqueued")
		if on := p.idsOn(t, account, s.Jobs.For(id)); !slices.Equal(on, []string{id}) {
			t.Errorf("queue %s of account %d has %q, want %s", s.Jobs.For(id).Name(), account, on, id)
		}
	}
	p.sick(1)
	fields.Set("id", p.ids[1][1])
	wantText(t, "a job of an account that does not answer", p.made(t, p.post(t, "/put", fields)), `role="alert"`, "account1")
	fields.Set("id", p.ids[0][1])
	wantText(t, "a job of the other", p.made(t, p.post(t, "/put", fields)), "enqueued")
}

// TestNewerRecords: no change touches a job with a record of a newer version, and each says why.
func TestNewerRecords(t *testing.T) { synctest.Test(t, newerRecords) }

func newerRecords(t *testing.T) {
	p := setupPair(t)
	second := p.stores.Accounts[1]
	id := p.ids[1][0]
	p.giveUp(t, 1, id, second.Jobs.At(0).Name())
	records := second.Account.Container(second.Names.Records)
	names := p.servers[1].Blobs(second.Names.Records)
	if len(names) != 1 {
		t.Fatalf("%d records, want 1", len(names))
	}
	newer := map[string]*string{"v": new("99"), "status": new("poison"), "kind": new("k")}
	if _, err := records.NewBlobClient(names[0].Name).SetMetadata(t.Context(), newer, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * actions.OrphanIdle)
	p.reread()
	before, _, _ := p.servers[1].ReadBlob(second.Names.Records, names[0].Name)
	const why = "newer version"
	wantText(t, "its page", p.get(t, "/job/"+id).Body.String(), "Job "+id, why)
	wantText(t, "the list", p.get(t, "/jobs").Body.String(), id, "unknown")
	_, fields := p.ask(t, "/put")
	fields.Set("kind", "k")
	fields.Set("id", id)
	wantText(t, "a put", p.made(t, p.post(t, "/put", fields)), why)
	for _, do := range []string{"cancel", "replay", "purge", "requeue"} {
		page, fields := p.ask(t, "/change?do="+do+"&id="+id)
		if fields.Get("key") != "" {
			page = p.made(t, p.post(t, "/change", fields))
		}
		if strings.Contains(page, "Done.") {
			t.Errorf("%s says that it is done: %s", do, page)
		}
		wantText(t, do, page, map[string]string{
			"cancel": why, "replay": "cannot be read by this version", "purge": "cannot be read by this version", "requeue": "not among the jobs",
		}[do])
	}
	after, _, _ := p.servers[1].ReadBlob(second.Names.Records, names[0].Name)
	if a, _ := json.Marshal(after); string(a) != mustJSON(t, before) {
		t.Errorf("the record changed from %+v to %+v", before, after)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestJobDuringAnOutage: while a job's account does not answer, its page shows the last state and
// names the account. A job that was not read before has none.
func TestJobDuringAnOutage(t *testing.T) {
	p := setupPair(t)
	p.Server.jobs.keep = 0
	known, other := p.ids[1][0], p.ids[1][1]
	for _, id := range []string{known, other} {
		if err := p.work(t, 1, id).Fail(t.Context(), checkpoint.Snapshot{}, "no such frame"); err != nil {
			t.Fatal(err)
		}
	}
	const said = "This job cannot be read. Shown is its state of"
	if page := p.get(t, "/job/"+known).Body.String(); strings.Contains(page, said) {
		t.Errorf("the page says %q without an outage", said)
	}
	p.sick(1)
	for range 2 { // the second read keeps the same
		w := p.get(t, "/job/"+known)
		wantText(t, "the page", w.Body.String(), said, "account1", "no such frame")
		if w.Code != http.StatusOK {
			t.Errorf("status %d, want 200", w.Code)
		}
	}
	if w := p.get(t, "/job/"+other); w.Code != http.StatusBadGateway {
		t.Errorf("a job that was not read: status %d, want 502", w.Code)
	}
	p.well(1)
	if page := p.get(t, "/job/"+known).Body.String(); strings.Contains(page, said) {
		t.Error("after the outage the page still shows the earlier state")
	}
}

// TestResultAfterAFault: a result that could not be read at first is read again, although the record
// stays the same.
func TestResultAfterAFault(t *testing.T) {
	p := setupPair(t)
	p.Server.jobs.keep = 0
	id := p.ids[1][0]
	if err := p.work(t, 1, id).Commit(t.Context(), []byte("forty-two")); err != nil {
		t.Fatal(err)
	}
	p.servers[1].OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetBlob {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationFailure"}}
		}
		return storage.Fault{}
	})
	const said = "Log, outputs or result could not be read."
	for range 2 {
		wantText(t, "the page", p.get(t, "/job/"+id).Body.String(), said, "AuthorizationFailure")
	}
	p.well(1)
	page := p.get(t, "/job/"+id).Body.String()
	wantText(t, "the page after the fault", page, "forty-two")
	if strings.Contains(page, said) {
		t.Errorf("the page still says %q", said)
	}
}

// TestWaitsWithoutHeartbeats: while the account with the heartbeats does not answer, the page of a job
// in another account does not say that no worker is alive.
func TestWaitsWithoutHeartbeats(t *testing.T) {
	p := setupPair(t)
	id := p.ids[1][0]
	if err := p.work(t, 1, id).Release(t.Context(), checkpoint.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	const said = "none is alive"
	p.reread()
	wantText(t, "the page", p.get(t, "/job/"+id).Body.String(), said)
	p.sick(0)
	for range 2 { // the page may have begun a read before
		p.reread()
	}
	page := p.get(t, "/job/"+id).Body.String()
	wantText(t, "the page without heartbeats", page, "the workers cannot be read")
	if strings.Contains(page, said) {
		t.Errorf("the page says %q, and no heartbeat was read", said)
	}
}
