package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// rig is a storage account and a proxy to it.
type rig struct {
	server   *storage.Server
	names    azure.Names
	recorder *Recorder
	proxy    *Proxy
	queue    *queue.Queue // through the proxy

	connectionString string // of the account itself
}

func newRig(t *testing.T) *rig {
	t.Helper()
	names, err := azure.NamesFor("test", "")
	if err != nil {
		t.Fatal(err)
	}
	h := &rig{server: storage.New(storage.Options{}), names: names, recorder: NewRecorder(30 * time.Second)}
	connectionString, err := h.server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	h.connectionString = connectionString
	to := upstream(true)
	if h.proxy, err = startProxy("vm", connectionString, names, h.recorder, to, nil); err != nil {
		t.Fatal(err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: h.proxy.connectionString})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.proxy.close()
		to.CloseIdleConnections()
		if err := h.server.Close(); err != nil {
			t.Error(err)
		}
	})
	h.queue = queue.New(account.Queue(names.Queue), names.Queue)
	if err := h.queue.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// A VM holds a claimed message until it is released, deleted, or claimed by another.
func TestHeldMessages(t *testing.T) {
	h := newRig(t)
	h.recorder.Expect("a", oracle.Job{}, nil)
	for range 3 {
		if err := h.queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "steps"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	leases, err := h.queue.Claim(t.Context(), 3, 30*time.Second)
	if err != nil || len(leases) != 3 || h.recorder.Held("vm") != 3 {
		t.Fatalf("Claim = %d messages, %v, of which %d are held, want 3", len(leases), err, h.recorder.Held("vm"))
	}
	if err := leases[0].Renew(t.Context(), 30*time.Second); err != nil || h.recorder.Held("vm") != 3 {
		t.Errorf("after a renewal (%v) %d are held, want 3", err, h.recorder.Held("vm"))
	}
	if err := leases[0].Release(t.Context(), 0); err != nil || h.recorder.Held("vm") != 2 {
		t.Errorf("after a release (%v) %d are held, want 2", err, h.recorder.Held("vm"))
	}
	if err := leases[1].Complete(t.Context()); err != nil || h.recorder.Held("vm") != 1 {
		t.Errorf("after a deletion (%v) %d are held, want 1", err, h.recorder.Held("vm"))
	}
	if n := len(h.recorder.facts.Jobs["a"].Deletions); n != 1 {
		t.Errorf("deletions of the job's messages = %d, want 1", n)
	}
	if n := len(h.recorder.facts.Jobs["a"].Replacements); n != 3 {
		t.Errorf("messages put through the proxy = %d, want 3", n)
	}
	h.recorder.claimed(h.recorder.vm("other"), leases[2].ID, true, time.Now())
	if h.recorder.Held("vm") != 0 || h.recorder.Held("other") != 1 {
		t.Errorf("claimed by another: %d and %d held, want 0 and 1", h.recorder.Held("vm"), h.recorder.Held("other"))
	}
	h.recorder.Killed("other")
	if f := h.recorder.facts; f.JobsAtKills != 1 || f.KillsWithJobs != 1 || f.Jobs["a"].Kills != 1 {
		t.Errorf("messages held at %d kills = %d (%d kills of the job), want 1", f.KillsWithJobs, f.JobsAtKills, f.Jobs["a"].Kills)
	}
}

// TestWrites takes a job over while its first owner stands still: each write is its worker's, with
// the progress of its state, and the refused one is too. A forbidden write, done by hand, is stale.
func TestWrites(t *testing.T) {
	h := newRig(t)
	stores := func(vm string) *deployment.Stores {
		p, err := startProxy(vm, h.connectionString, h.names, h.recorder, h.proxy.storage, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: p.connectionString})
		if err != nil {
			t.Fatal(err)
		}
		return deployment.StoresOf(account, h.names)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := stores("a"), stores("b")
	_, err := a.Account.Container(h.names.Records).Create(t.Context(), nil)
	must(err)
	h.recorder.Expect("j", oracle.Job{Put: time.Now(), Healthy: true}, func(result []byte) bool { return string(result) == "42" })
	delivery := checkpoint.Delivery{ID: "j", Kind: "steps", MessageID: "m"}

	stale := a.Records.Fresh(delivery, "worker-a")
	must(stale.Save(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":40}`), Version: 1}))
	must(stale.Touch(t.Context(), checkpoint.Snapshot{}))
	record, ruling, err := b.Records.Lookup(t.Context(), delivery)
	if err != nil || ruling != checkpoint.Acquire {
		t.Fatalf("Lookup = %v, %v, want Acquire", ruling, err)
	}
	claim, err := b.Records.Acquire(t.Context(), delivery, record, "worker-b")
	must(err)
	if err := stale.Save(t.Context(), checkpoint.Snapshot{State: []byte(`{"offset":60}`), Version: 1}); err == nil {
		t.Fatal("a stale owner's save succeeded")
	}
	must(claim.Commit(t.Context(), []byte("41")))
	facts := h.recorder.facts
	var got []string
	for _, w := range facts.Jobs["j"].Writes {
		got = append(got, fmt.Sprint(w.VM, " ", w.Status, " ", w.Progress))
	}
	if want := []string{"a running 40", "a running -1", "b running -1", "b done -1"}; !slices.Equal(got, want) {
		t.Errorf("writes %q, want %q", got, want)
	}
	if len(facts.Refusals) != 1 || facts.Refusals[0].VM != "a" || facts.Refusals[0].Job != "j" {
		t.Errorf("refusals %+v, want one of a for job j", facts.Refusals)
	}
	if v := facts.Jobs["j"].Judge(); v.Committed != 1 || v.Broken[oracle.Wrong] != 1 || v.Broken[oracle.Stale] != 0 {
		t.Errorf("verdict %+v, want one commit of a wrong result", v)
	}
	blob := a.Account.Container(h.names.Records).NewBlockBlobClient(jobid.Path("j"))
	_, err = blob.SetMetadata(t.Context(), map[string]*string{"status": new("open"), "token": new(facts.Jobs["j"].Writes[0].Token)}, nil)
	must(err)
	if v := facts.Jobs["j"].Judge(); v.Broken[oracle.Stale] != 1 {
		t.Errorf("%d stale writes, want 1", v.Broken[oracle.Stale])
	}
}

// Each fault lets the call take effect or not. The caller gets no reply, and learns that at
// once only if the connection is reset.
func TestProxyFaults(t *testing.T) {
	for f := range Faults {
		t.Run(f.String(), func(t *testing.T) {
			h := newRig(t)
			delay, over := 2*time.Second, make(chan struct{})
			if f == DelayReply {
				delay = time.Hour
			}
			h.proxy.over = over
			defer close(over)
			arrived, injected := make(chan struct{}, 100), make(chan struct{}, 100)
			remove := h.proxy.Inject(&Injection{
				Calls: 100, Fault: f, Delay: delay,
				Matches:  func(Call) bool { arrived <- struct{}{}; return true },
				Injected: func() { injected <- struct{}{} },
			})
			ctx, giveUp := context.WithCancel(policy.WithRetryOptions(t.Context(), policy.RetryOptions{MaxRetries: -1}))
			defer giveUp()
			began, result := time.Now(), make(chan error, 1)
			go func() { result <- putUnlimited(ctx, h) }()
			<-arrived
			switch f {
			case SwallowRequest, SwallowReply, DelayReply:
				<-injected
				time.Sleep(100 * time.Millisecond) // a reply, or a reset, would come sooner
				giveUp()
			case DelayRequest:
				giveUp()
			default: // the caller gets an error without that
			}
			if err := <-result; err == nil || errors.Is(err, context.Canceled) != (f > ResetReply) {
				t.Errorf("a call with a fault = %v, want an error; the caller gave up: %t", err, f > ResetReply)
			}
			remove()
			if f == DelayRequest {
				<-injected // it is reported after its effect
				if took := time.Since(began); took < delay {
					t.Errorf("a delayed request had its effect after %s, want %s", took, delay)
				}
			}
			if n := len(h.server.Messages(h.names.Queue)); (n > 0) != f.hasEffect() {
				t.Errorf("messages put by it = %d, want any: %t", n, f.hasEffect())
			}
			if err := putUnlimited(t.Context(), h); err != nil {
				t.Errorf("the next call = %v, want nil", err)
			}
		})
	}
}

// No call gets through while the VM is cut off.
func TestCutOff(t *testing.T) {
	h := newRig(t)
	h.proxy.SetCutOff(true)
	if err := putOnce(t.Context(), h); err == nil || len(h.server.Messages(h.names.Queue)) > 0 {
		t.Errorf("a call that was cut = %v, with %d messages put, want an error and none", err, len(h.server.Messages(h.names.Queue)))
	}
	h.proxy.SetCutOff(false)
	if err := putUnlimited(t.Context(), h); err != nil {
		t.Errorf("the next call = %v, want nil", err)
	}
}

// At the end of a run all delays end, and delayed calls take no effect.
func TestRunEndsDelays(t *testing.T) {
	h := newRig(t)
	over := make(chan struct{})
	h.proxy.over = over
	h.proxy.Inject(&Injection{Calls: 100, Matches: everything, Fault: DelayRequest, Delay: time.Hour})
	if err := putOnce(t.Context(), h); err == nil {
		t.Error("a delayed call = nil, want an error")
	}
	close(over)
	h.proxy.Inject(&Injection{Calls: 100, Matches: everything, Fault: SwallowReply})
	h.proxy.close()
	if n := len(h.server.Messages(h.names.Queue)); n > 0 {
		t.Errorf("messages put by a call that was in flight = %d, want 0", n)
	}
}

// putLimit is less than any delay of these tests, and more than a call takes.
const putLimit = 400 * time.Millisecond

// putOnce puts a message and does not wait for a second try.
func putOnce(ctx context.Context, h *rig) error {
	ctx, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	return putUnlimited(ctx, h)
}

// putUnlimited puts a message, however long a busy machine takes for it.
func putUnlimited(ctx context.Context, h *rig) error {
	return h.queue.Put(ctx, queue.Envelope{ID: "a", Kind: "steps"}, 0)
}

// An injection that was removed is not applied.
func TestRemovedInjection(t *testing.T) {
	d := &Proxy{}
	remove := d.Inject(&Injection{Calls: 1, Matches: everything})
	if !remove() || remove() {
		t.Error("remove: want true once, then false")
	}
	if got, _ := d.match(Call{}); got != nil {
		t.Error("an injection that was removed was applied")
	}
	d.Inject(&Injection{Calls: 2, Matches: everything})
	for want := range 3 {
		if got, _ := d.match(Call{}); (got != nil) != (want < 2) {
			t.Errorf("call %d with an injection for two: %v", want, got)
		}
	}
}

func everything(Call) bool { return true }
