package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/actions"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// desk is a page of a deployment with two queues, and no worker.
type desk struct {
	*rig
	server *storage.Server
	stores *deployment.Stores
}

func setupDesk(t *testing.T) *desk {
	t.Helper()
	p := &desk{server: storage.New(storage.Options{})}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: p.server.ConnectionString(), Transport: p.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	p.stores = deployment.StoresOf(account, names)
	if err := p.stores.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := operate.Resize(t.Context(), p.stores.Jobs, 2, 0, func(int) {}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(client.Options{ConnectionString: p.server.ConnectionString(), Transport: p.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	p.rig = setupOf(t, Config{Title: "test", Client: c, Explain: error.Error, Every: time.Hour, AllowChanges: true, Control: "control",
		Read: func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
			return overview.ReadEach(ctx, c, each, early)
		}})
	return p
}

// sick makes the account refuse all calls.
func (p *desk) sick() {
	p.server.OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationFailure"}}
	})
}

// well ends that.
func (p *desk) well() {
	p.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{} })
}

// reread makes the page read the deployment again.
func (p *desk) reread() {
	_, next := p.feed.now()
	p.feed.again()
	<-next
}

// work writes the record of a job as a worker leaves it that runs it.
func (p *desk) work(t *testing.T, id string) *checkpoint.Claim {
	t.Helper()
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "message of " + id}
	claim, err := p.stores.Records.Create(t.Context(), d, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// giveUp writes record and poison message of a job that came from a queue.
func (p *desk) giveUp(t *testing.T, id, origin string) {
	t.Helper()
	err := p.work(t, id).Poison(t.Context(), checkpoint.Snapshot{}, "no such frame")
	var text string
	if err == nil {
		text, err = queue.Envelope{ID: id, Kind: "k"}.Encode()
	}
	if err == nil {
		err = p.stores.Poison.PutPoison(t.Context(), queue.Poison{ID: id, Kind: "k", Reason: "no such frame", PoisonedAt: time.Now().UTC(),
			Worker: "worker-1", Origin: origin, MessageID: "m-" + id, Body: text}, p.stores.Payloads)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// idsOn are the jobs with messages on a queue.
func (p *desk) idsOn(t *testing.T, on *queue.Queue) (ids []string) {
	t.Helper()
	for _, m := range p.server.Messages(on.Name()) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// TestRequeueWithoutMessage: a job without a message gets one. A job whose message is on the
// on-demand queue has one.
func TestRequeueWithoutMessage(t *testing.T) { synctest.Test(t, requeueWithoutMessage) }

func requeueWithoutMessage(t *testing.T) {
	p := setupDesk(t)
	const moved, lost = "moved", "lost"
	for _, id := range []string{moved, lost} {
		claim := p.work(t, id)
		claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.MoveReason = "it was interrupted 3 times"; return f })
		if err := claim.Release(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.stores.OnDemand.Put(t.Context(), queue.Envelope{ID: moved, Kind: "k", Resume: true}, 0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * actions.OrphanIdle)
	page, _ := p.ask(t, "/change?do=requeue&id="+moved)
	wantText(t, "a job with a message", page, "not among the jobs that orphans list shows")
	page, fields := p.ask(t, "/change?do=requeue&id="+lost)
	wantText(t, "the question", page, "Put a new message for job "+lost+"?", "it was interrupted 3 times")
	fields.Set("ondemand", "1")
	wantText(t, "the outcome", p.made(t, p.post(t, "/change", fields)), "Done.", "1 requeued")
	if on := p.idsOn(t, p.stores.OnDemand); !slices.Equal(on, []string{moved, lost}) {
		t.Errorf("the on-demand queue has %q, want both jobs", on)
	}
	p.sick()
	page, _ = p.ask(t, "/change?do=requeue&id="+lost)
	wantText(t, "a job that cannot be found", page, "AuthorizationFailure")
}

// TestNewerRecords: no change touches a job with a record of a newer version, and each says why.
func TestNewerRecords(t *testing.T) { synctest.Test(t, newerRecords) }

func newerRecords(t *testing.T) {
	p := setupDesk(t)
	const id = "job"
	p.giveUp(t, id, p.stores.Jobs.At(0).Name())
	records := p.stores.Account.Container(p.stores.Names.Records)
	names := p.server.Blobs(p.stores.Names.Records)
	if len(names) != 1 {
		t.Fatalf("%d records, want 1", len(names))
	}
	newer := map[string]*string{"v": new("99"), "status": new("poison"), "kind": new("k")}
	if _, err := records.NewBlobClient(names[0].Name).SetMetadata(t.Context(), newer, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * actions.OrphanIdle)
	p.reread()
	before, _, _ := p.server.ReadBlob(p.stores.Names.Records, names[0].Name)
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
	after, _, _ := p.server.ReadBlob(p.stores.Names.Records, names[0].Name)
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

// TestJobDuringAnOutage: while the account does not answer, a job's page shows the last state. A
// job that was not read before has none.
func TestJobDuringAnOutage(t *testing.T) {
	p := setupDesk(t)
	p.Server.jobs.keep = 0
	const known, other = "known", "other"
	for _, id := range []string{known, other} {
		if err := p.work(t, id).Fail(t.Context(), checkpoint.Snapshot{}, "no such frame"); err != nil {
			t.Fatal(err)
		}
	}
	const said = "This job cannot be read. Shown is its state of"
	if page := p.get(t, "/job/"+known).Body.String(); strings.Contains(page, said) {
		t.Errorf("the page says %q without an outage", said)
	}
	p.sick()
	for range 2 { // the second read keeps the same
		w := p.get(t, "/job/"+known)
		wantText(t, "the page", w.Body.String(), said, "AuthorizationFailure", "no such frame")
		if w.Code != http.StatusOK {
			t.Errorf("status %d, want 200", w.Code)
		}
	}
	if w := p.get(t, "/job/"+other); w.Code != http.StatusBadGateway {
		t.Errorf("a job that was not read: status %d, want 502", w.Code)
	}
	p.well()
	if page := p.get(t, "/job/"+known).Body.String(); strings.Contains(page, said) {
		t.Error("after the outage the page still shows the earlier state")
	}
}

// TestResultAfterAFault: a result that could not be read at first is read again, although the record
// stays the same.
func TestResultAfterAFault(t *testing.T) {
	p := setupDesk(t)
	p.Server.jobs.keep = 0
	const id = "job"
	if err := p.work(t, id).Commit(t.Context(), []byte("forty-two")); err != nil {
		t.Fatal(err)
	}
	p.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpGetBlob {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationFailure"}}
		}
		return storage.Fault{}
	})
	const said = "Log, outputs, result or payload could not be read."
	for range 2 {
		wantText(t, "the page", p.get(t, "/job/"+id).Body.String(), said, "AuthorizationFailure")
	}
	p.well()
	page := p.get(t, "/job/"+id).Body.String()
	wantText(t, "the page after the fault", page, "forty-two")
	if strings.Contains(page, said) {
		t.Errorf("the page still says %q", said)
	}
}

// TestWaitsWithoutHeartbeats: while heartbeats cannot be read, the page of a job does not say that
// no worker is alive.
func TestWaitsWithoutHeartbeats(t *testing.T) {
	p := setupDesk(t)
	const id = "job"
	if err := p.work(t, id).Release(t.Context(), checkpoint.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	const said = "none is alive"
	p.reread()
	wantText(t, "the page", p.get(t, "/job/"+id).Body.String(), said)
	p.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Container == p.stores.Names.Workers {
			return storage.Fault{Refuse: &storage.Error{Status: http.StatusForbidden, Code: "AuthorizationFailure"}}
		}
		return storage.Fault{}
	})
	for range 2 { // the page may have begun a read before
		p.reread()
	}
	page := p.get(t, "/job/"+id).Body.String()
	wantText(t, "the page without heartbeats", page, "the workers cannot be read")
	if strings.Contains(page, said) {
		t.Errorf("the page says %q, and no heartbeat was read", said)
	}
}
