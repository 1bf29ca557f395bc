package operate

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a deployment in virtual time and an operator's access to it.
type rig struct {
	*PoisonQueue
	server *storage.Server
	names  azure.Names
	stores *deployment.Stores // not the operator's: the test's own calls do not count
	link   *link
	told   []Outcome
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		names, err := azure.NamesFor("test", "")
		if err != nil {
			t.Fatal(err)
		}
		b := &rig{server: storage.New(storage.Options{}), names: names}
		b.stores = b.connect(t, b.server.Transport())
		for _, q := range b.stores.AllQueues() {
			if err := q.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{names.Records, names.Payloads, names.Control, names.Outputs} {
			if _, err := b.stores.Account.Container(name).Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		b.restart(t)
		test(t, b)
	})
}

func (b *rig) connect(t *testing.T, transport policy.Transporter) *deployment.Stores {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: b.server.ConnectionString(), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return deployment.StoresOf(account, b.names)
}

// restart connects again, as after a crash.
func (b *rig) restart(t *testing.T) {
	t.Helper()
	b.link = &link{next: b.server.Transport()}
	s := b.connect(t, b.link)
	b.PoisonQueue = &PoisonQueue{Poison: s.Poison, Queue: s.Queue, OnDemand: s.OnDemand, Queues: s.JobQueues, Payloads: s.Payloads,
		Records: s.Records, Name: "spotctl@test"}
	b.told = nil
}

// report records an outcome.
func (b *rig) report(o Outcome) error {
	b.told = append(b.told, o)
	return nil
}

// all means every message.
var all = Selection{All: true}

// actions returns the outcomes of the messages, in a line.
func (b *rig) actions() string {
	var words []string
	for _, o := range b.told {
		words = append(words, string(o.Action))
	}
	return strings.Join(words, " ")
}

// link is the operator's connection to storage, which can fail.
type link struct {
	next policy.Transporter

	mu     sync.Mutex
	calls  int
	dieAt  int  // the call after which it is dead; 0 for none
	effect bool // that call still has its effect
	drop   int  // a call whose request (or with effect its reply) is lost, and that is all
}

var errDead = errors.New("the operator's machine is gone")

func (l *link) Do(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.calls++
	at, last := l.calls, l.dieAt
	lost, effect := l.drop == at || last == at, l.effect
	l.mu.Unlock()
	switch {
	case last > 0 && at > last, lost && !effect:
		return nil, errDead
	case lost:
		if reply, err := l.next.Do(r); err == nil {
			_ = reply.Body.Close()
		}
		return nil, errDead
	}
	return l.next.Do(r)
}

func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// given is a job that was dead-lettered, as its worker left it.
type given struct {
	id, kind string
	payload  queue.Payload
	onDemand bool
	state    string
	twice    bool // the poison message is there twice
	offload  bool // the payload is in a blob
	status   checkpoint.Status
	gone     bool // the record was removed
	inputs   string
	noList   bool // the record does not have the list of inputs
	outputs  int  // files that the job has stored
}

// put makes the record and the poison message of a job that was dead-lettered.
func (b *rig) put(t *testing.T, g given) queue.Envelope {
	t.Helper()
	e := queue.Envelope{ID: g.id, Kind: g.kind, Payload: g.payload, Inputs: json.RawMessage(g.inputs), EnqueuedAt: time.Now().UTC(),
		Deadline: time.Now().Add(time.Hour).UTC()}
	if g.kind == "" {
		e.Kind = "k"
	}
	if g.offload {
		var err error
		if e, err = b.stores.Payloads.Offload(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	from := b.stores.Queue
	if g.onDemand {
		from = b.stores.OnDemand
	}
	if err := from.Put(t.Context(), e, 0); err != nil {
		t.Fatal(err)
	}
	leases, err := from.Claim(t.Context(), 1, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %d messages, %v", len(leases), err)
	}
	if !g.gone {
		b.giveUp(t, g, e, leases[0])
	}
	p := queue.Poison{
		ID: e.ID, Kind: e.Kind, Reason: "5 failures in a row", PoisonedAt: time.Now().UTC(), Worker: "vm_0",
		Origin: from.Name(), MessageID: leases[0].ID, Body: leases[0].Text(),
	}
	for range map[bool]int{false: 1, true: 2}[g.twice] {
		b.putPoison(t, p)
	}
	if err := leases[0].Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (b *rig) putPoison(t *testing.T, p queue.Poison) {
	t.Helper()
	if err := b.stores.Poison.PutPoison(t.Context(), p, b.stores.Payloads); err != nil {
		t.Fatal(err)
	}
}

// giveUp leaves the record of a job as its last worker did.
func (b *rig) giveUp(t *testing.T, g given, e queue.Envelope, lease *queue.Lease) {
	t.Helper()
	d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: lease.ID}
	if !g.noList {
		d.InputList = checkpoint.PackInputs(e.Inputs)
	}
	claim, err := b.stores.Records.Create(t.Context(), d, "vm_0")
	if err != nil {
		t.Fatal(err)
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
		if g.inputs != "" {
			f.Inputs = strings.Repeat("a", 64)
		}
		if g.outputs > 0 {
			f.Outputs = checkpoint.Outputs{Hash: strings.Repeat("b", 64), Files: g.outputs, Bytes: 1}
		}
		f.RunTime = time.Hour
		return f
	})
	last := checkpoint.Snapshot{Fraction: 0.5}
	if g.state != "" {
		last.State = []byte(g.state)
	}
	switch g.status {
	case checkpoint.Done:
		err = claim.Commit(t.Context(), []byte("result"))
	case checkpoint.Open:
		err = claim.Fail(t.Context(), last, "no such blob")
	case checkpoint.Running:
		err = claim.Save(t.Context(), last)
	default:
		err = claim.Poison(t.Context(), last, "5 failures in a row")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// record returns a job's record; the zero value stands for none.
func (b *rig) record(t *testing.T, id string) checkpoint.Record {
	t.Helper()
	r, err := b.stores.Records.Read(t.Context(), id)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatal(err)
	}
	return r
}

// payloads returns how many blobs there are of payloads and of messages' texts.
func (b *rig) payloads() (n int) { return len(b.server.Blobs(b.names.Payloads)) }

// onQueue decodes the messages on a queue of jobs.
func (b *rig) onQueue(t *testing.T, name string) (all []queue.Envelope) {
	t.Helper()
	for _, m := range b.server.Messages(name) {
		e, err := queue.Decode(m.Text)
		if err != nil {
			t.Fatalf("message %q: %v", m.Text, err)
		}
		if !m.Expires.IsZero() {
			t.Errorf("message of job %s expires at %v, want never", e.ID, m.Expires)
		}
		all = append(all, e)
	}
	return all
}

// poisoned returns how many messages are on the poison queue, and how many of
// them are visible.
func (b *rig) poisoned() (n, visible int) {
	messages := b.server.Messages(b.names.Poison)
	for _, m := range messages {
		if m.Visible {
			visible++
		}
	}
	return len(messages), visible
}

// work does the jobs on the queues as workers do, by the rules of their records,
// until no message is left. It returns the states that were resumed from, by job,
// one for each time that a job was committed.
func (b *rig) work(t *testing.T) map[string][]string {
	t.Helper()
	done := map[string][]string{}
	for range 100 {
		left := 0
		for _, q := range []*queue.Queue{b.stores.Queue, b.stores.OnDemand} {
			left += len(b.server.Messages(q.Name()))
			leases, err := q.Claim(t.Context(), 32, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range leases {
				b.deliver(t, l, done)
			}
		}
		if left == 0 {
			return done
		}
		time.Sleep(10 * time.Second)
	}
	t.Fatal("messages are left on the queues of jobs")
	return nil
}

// deliver makes one delivery.
func (b *rig) deliver(t *testing.T, l *queue.Lease, done map[string][]string) {
	t.Helper()
	ctx := context.Background()
	e, err := queue.Decode(l.Text())
	if err != nil {
		t.Fatal(err)
	}
	if !e.Resume {
		t.Errorf("message of job %s does not say resume", e.ID)
	}
	d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: l.ID}
	found, ruling, err := b.stores.Records.Lookup(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	switch ruling {
	case checkpoint.Acquire:
		claim, err := b.stores.Records.Acquire(ctx, d, found, "vm_1")
		if err != nil {
			t.Fatal(err)
		}
		state, err := claim.Restore(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.stores.Payloads.Load(ctx, e); err != nil {
			t.Errorf("payload of job %s: %v", e.ID, err)
		}
		if err := claim.Commit(ctx, []byte("result")); err != nil {
			t.Fatal(err)
		}
		done[e.ID] = append(done[e.ID], stateOf(state))
	case checkpoint.Finish:
	default:
		t.Errorf("job %s: ruling %s, want its record there", e.ID, ruling)
	}
	if err := b.stores.Payloads.Discard(ctx, e); err != nil {
		t.Fatal(err)
	}
	if err := l.Complete(ctx); err != nil {
		t.Fatal(err)
	}
}

func stateOf(s *checkpoint.Snapshot) string {
	if s == nil {
		return ""
	}
	return string(s.State)
}
