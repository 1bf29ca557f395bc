package demo

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	azblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// watched is a deployment on an emulator whose calls a recorder records.
type watched struct {
	*deployment.Stores
	server   *storage.Server
	recorder *recorder
}

func watch(t *testing.T) *watched {
	t.Helper()
	names, err := azure.NamesFor("lab", "")
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{server: storage.New(storage.Options{})}
	w.recorder = newRecorder(w.server, names)
	w.server.OnCall(func(c storage.Call) storage.Fault { w.recorder.onCall(c); return storage.Fault{} })
	w.server.OnResult(w.recorder.onResult)
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: w.server.ConnectionString(), Transport: w.server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	w.Stores = deployment.StoresOf(account, names)
	for _, q := range []*queue.Queue{w.Queue, w.Poison} {
		if err := q.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := account.Container(names.Records).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.recorder.expect([]lab.File{{Blob: "usr/x", Size: 100, SHA256: "dd"}})
	return w
}

// put enqueues job j and claims its message.
func (w *watched) put(t *testing.T) (*queue.Lease, checkpoint.Delivery) {
	t.Helper()
	payload, err := queue.JSONPayload([]byte(`{"container":"c","blob":"usr/x"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Queue.Put(t.Context(), queue.Envelope{ID: "j", Kind: "digest", Payload: payload}, 0); err != nil {
		t.Fatal(err)
	}
	return w.claimMessage(t)
}

func (w *watched) claimMessage(t *testing.T) (*queue.Lease, checkpoint.Delivery) {
	t.Helper()
	leases, err := w.Queue.Claim(t.Context(), 1, 30*time.Second)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %d messages, %v, want one", len(leases), err)
	}
	return leases[0], checkpoint.Delivery{ID: "j", Kind: "digest", MessageID: leases[0].ID}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// audit returns the present findings of the history.
func (w *watched) audit() findings {
	return audit(w.recorder.history, endOf(w.server, w.recorder.names, w.recorder.history))
}

func TestRecorderSeesAJobThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		lease, delivery := w.put(t)
		start := time.Now()
		time.Sleep(time.Second)
		w.recorder.onLine("spot_1", []byte(`{"time":"`+time.Now().Format(time.RFC3339Nano)+`","msg":"job started","job_id":"j","message_id":"`+
			lease.ID+`"}`))
		time.Sleep(time.Second)
		w.recorder.onLine("spot_1", []byte(`{"time":"`+time.Now().Format(time.RFC3339Nano)+
			`","msg":"range hashed","job_id":"j","offset":0,"bytes":60}`))
		claim := w.Records.Fresh(delivery, "spot_1-12345678-0")
		must(t, claim.Save(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":40}`), Version: 1}))

		h := w.recorder.history
		want := []activeJob{{job: "j", blob: "usr/x", size: 100, hashed: 60, saved: 40, unsavedSince: h.ranges[0].at}}
		if diff := cmp.Diff(want, h.active("spot_1"), cmp.AllowUnexported(activeJob{})); diff != "" {
			t.Errorf("active jobs of spot_1 (-want +got):\n%s", diff)
		}
		if got := h.active("spot_10"); len(got) != 0 {
			t.Errorf("active jobs of spot_10: %v, want nothing", got)
		}

		time.Sleep(time.Second)
		must(t, lease.Renew(t.Context(), 30*time.Second))
		must(t, claim.Touch(t.Context(), checkpoint.Snapshot{}))
		must(t, claim.Release(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":60}`), Version: 1}))
		must(t, lease.Release(t.Context(), 0))
		if at, over := h.endOf(h.starts[0]); !over || at.Sub(start) != 3*time.Second {
			t.Errorf("end of the delivery = %s after the claim, %t; want 3s, when it was released", at.Sub(start), over)
		}
		var offsets []int64
		for _, write := range h.writes("j") {
			offsets = append(offsets, write.Progress)
			if write.VM != "spot_1" {
				t.Errorf("write by %q, want spot_1", write.VM)
			}
		}
		if diff := cmp.Diff([]int64{40, -1, 60}, offsets); diff != "" {
			t.Errorf("saved offsets (-want +got):\n%s", diff)
		}

		lease, delivery = w.claimMessage(t)
		record, ruling, err := w.Records.Lookup(t.Context(), delivery)
		if err != nil || ruling != checkpoint.Acquire {
			t.Fatalf("Look = %v, %v, want Take", ruling, err)
		}
		claim, err = w.Records.Acquire(t.Context(), delivery, record, "spot_2-12345678-0")
		must(t, err)
		must(t, claim.Commit(t.Context(), []byte(`{"algorithm":"sha256","digest":"dd","bytes":100}`)))
		must(t, lease.Complete(t.Context()))
		got := w.audit()
		if got.Jobs != 1 || got.Committed != 1 || got.CommittedTwice+got.Lost+got.WrongDigests+got.Messages+got.Unseen != 0 {
			t.Errorf("findings = %+v, want one job, committed, and nothing wrong", got)
		}
	})
}

func TestRecorderSeesAMessageDeletedTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		lease, delivery := w.put(t)
		claim := w.Records.Fresh(delivery, "spot_1-12345678-0")
		must(t, claim.Touch(t.Context(), checkpoint.Snapshot{}))
		must(t, lease.Complete(t.Context()))
		if got := w.audit(); got.Lost != 1 || got.Committed != 0 {
			t.Errorf("lost %d, committed %d, want 1 and 0: the message is gone and the record says running", got.Lost, got.Committed)
		}
		time.Sleep(time.Second)
		must(t, claim.Commit(t.Context(), []byte(`{"algorithm":"sha256","digest":"dd","bytes":100}`)))
		if got := w.audit(); got.Lost != 1 || got.Committed != 1 {
			t.Errorf("lost %d, committed %d, want 1 and 1: a commit afterwards was luck", got.Lost, got.Committed)
		}
	})
}

func TestRecorderCountsEffectiveCommitsOnly(t *testing.T) {
	w := watch(t)
	w.put(t)
	blob := w.Account.Container(w.Names.Records).NewBlockBlobClient(jobid.Path("j"))
	commit := func(o *blockblob.UploadOptions) error {
		o.Metadata = map[string]*string{"status": new("done"), "owner": new("spot_1-12345678-0")}
		_, err := blob.Upload(t.Context(), streaming.NopCloser(bytes.NewReader([]byte(`{}`))), o)
		return err
	}
	must(t, commit(&blockblob.UploadOptions{}))
	stale := blockblob.UploadOptions{AccessConditions: &azblob.AccessConditions{
		ModifiedAccessConditions: &azblob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(`"stale"`))},
	}}
	if err := commit(&stale); err == nil {
		t.Fatal("a write under a stale ETag succeeded")
	}
	if got := w.audit(); got.Committed != 1 || got.CommittedTwice != 0 {
		t.Errorf("committed %d, twice %d, want 1 and 0: the second write was refused", got.Committed, got.CommittedTwice)
	}
	must(t, commit(&blockblob.UploadOptions{}))
	if got := w.audit(); got.CommittedTwice != 1 {
		t.Errorf("committed twice: %d, want 1", got.CommittedTwice)
	}
	if got := w.audit(); got.WrongDigests != 1 {
		t.Errorf("wrong digests: %d, want 1: the result is {}", got.WrongDigests)
	}
}

func TestRecorderSeesForeignMessages(t *testing.T) {
	w := watch(t)
	w.recorder.expectBad([]badMessage{{label: "expected", text: "expected text", reason: "no envelope"}})
	for _, text := range []string{"plain text", "expected text"} {
		if _, err := w.Account.Queue(w.Names.Queue).EnqueueMessage(t.Context(), text, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := w.audit()
	if got.Unseen != 1 || got.Jobs != 0 {
		t.Errorf("unseen %d, jobs %d, want 1 and 0: one message was not expected", got.Unseen, got.Jobs)
	}
	if len(got.BadMessages) != 1 || got.BadMessages[0].Kept {
		t.Errorf("bad messages %+v, want one that is not kept", got.BadMessages)
	}
	p := queue.Poison{Reason: "this is no envelope", PoisonedAt: time.Now(), Body: "expected text"}
	must(t, w.Poison.PutPoison(t.Context(), p, w.Payloads))
	if got = w.audit(); !got.BadMessages[0].Kept || len(got.Poison) != 1 {
		t.Errorf("bad messages %+v, poison %+v, want one that is kept", got.BadMessages, got.Poison)
	}
}

// TestRecorderSeesAStaleOwner takes a job over while its first owner stands still.
func TestRecorderSeesAStaleOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t)
		_, delivery := w.put(t)
		stale := w.Records.Fresh(delivery, "spot_1-12345678-0")
		must(t, stale.Save(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":40}`), Version: 1}))
		w.recorder.fate("spot_1", func(f *fate) { *f = fate{kind: frozen, at: time.Now()} })
		time.Sleep(31 * time.Second)
		lease, delivery := w.claimMessage(t)
		record, _, err := w.Records.Lookup(t.Context(), delivery)
		must(t, err)
		claim, err := w.Records.Acquire(t.Context(), delivery, record, "spot_2-12345678-0")
		must(t, err)

		if err := stale.Save(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":60}`), Version: 1}); err == nil {
			t.Fatal("a stale owner's save succeeded")
		}
		h := w.recorder.history
		if len(h.refusals) != 1 || h.refusals[0].vm != "spot_1" || h.refusals[0].job != "j" {
			t.Errorf("refusals %+v, want one of spot_1 for job j", h.refusals)
		}
		if got := w.audit(); got.StaleWrites != 0 || got.Frozen.Refused != 1 {
			t.Errorf("%d stale writes, %d refused, want 0 and 1", got.StaleWrites, got.Frozen.Refused)
		}
		must(t, claim.Commit(t.Context(), []byte(`{}`)))
		must(t, lease.Complete(t.Context()))
		if got := w.audit(); got.StaleWrites != 0 || got.Committed != 1 {
			t.Errorf("%d stale writes, %d committed, want 0 and 1", got.StaleWrites, got.Committed)
		}

		// Forbidden writes, done by hand: the old token on the record.
		blob := w.Account.Container(w.Names.Records).NewBlockBlobClient(jobid.Path("j"))
		_, err = blob.SetMetadata(t.Context(), map[string]*string{"status": new("open"), "token": new(h.writes("j")[0].Token)}, nil)
		must(t, err)
		if got := w.audit(); got.StaleWrites != 1 {
			t.Errorf("%d stale writes, want 1", got.StaleWrites)
		}
	})
}

func TestVMOf(t *testing.T) {
	for owner, want := range map[string]string{
		"spot_1-1a2b3c4d-0":        "spot_1",
		"my-set_12-1a2b3c4d-extra": "my-set_12",
		"spot%5F1-1a2b3c4d-0":      "spot_1",
		"host":                     "host",
		"":                         "",
	} {
		if got := vmOf(owner); got != want {
			t.Errorf("vmOf(%q) = %q, want %q", owner, got, want)
		}
	}
}
