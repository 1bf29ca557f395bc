package operate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// Payloads of three sizes: inline, inline so that the poison message's text needs
// a blob, and in a blob of its own.
var (
	small = queue.BytesPayload([]byte("small"))
	wide  = queue.BytesPayload([]byte(strings.Repeat("w", 30<<10)))
)

// TestReplay: a job continues from its state or without it, on the queue that it
// came from, with its counts at 0.
func TestReplay(t *testing.T) {
	for _, fromScratch := range []bool{false, true} {
		for name, g := range map[string]given{
			"small":       {state: "half", payload: small},
			"wide":        {state: "half", payload: wide},
			"offloaded":   {state: "half", payload: wide, offload: true},
			"on demand":   {state: "half", onDemand: true},
			"stateless":   {},
			"outputs":     {outputs: 2},
			"both":        {state: "half", outputs: 2},
			"twice":       {state: "half", payload: wide, twice: true},
			"record gone": {gone: true, payload: small},
		} {
			t.Run(fmt.Sprintf("%s, from scratch %t", name, fromScratch), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *rig) {
					g.id = "a"
					e := b.put(t, g)
					before := b.record(t, "a")
					if err := b.Replay(t.Context(), all, fromScratch, b.report); err != nil {
						t.Fatal(err)
					}
					want := "replayed"
					if g.twice {
						want = "replayed dropped"
					}
					if got := b.actions(); got != want {
						t.Errorf("actions = %s, want %s (%+v)", got, want, b.told)
					}
					b.expectReplayed(t, g, e, before, fromScratch)
					state := g.state
					if fromScratch {
						state = ""
					}
					if diff := cmp.Diff(map[string][]string{"a": {state}}, b.work(t)); diff != "" {
						t.Errorf("commits, by the state they continued from (-want +got):\n%s", diff)
					}
					if n := b.payloads(); n != 0 {
						t.Errorf("%d blobs of payloads and texts are left, want none", n)
					}
				})
			})
		}
	}
}

// TestGivenUpAgainDuringAReplay: the poison message of a job that a worker gives up again while
// the replay is in progress is no duplicate. It stays, and is not replayed by the same run.
func TestGivenUpAgainDuringAReplay(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Second} {
		for _, gone := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %s, record gone %t", after, gone), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *rig) {
					b.put(t, given{id: "a", twice: true, gone: gone})
					if err := b.Replay(t.Context(), all, false, func(o Outcome) error {
						if o.Action == Replayed {
							time.Sleep(after)
							b.giveUpAgain(t)
						}
						return b.report(o)
					}); err != nil {
						t.Fatal(err)
					}
					if got := b.actions(); got != "replayed dropped" {
						t.Errorf("actions = %s, want replayed dropped (%+v)", got, b.told)
					}
					if n, visible := b.poisoned(); n != 1 || visible != 1 {
						t.Errorf("%d poison messages, %d visible, want the new one", n, visible)
					}
				})
			})
		}
	}
}

// giveUpAgain makes a poison message of the replayed job.
func (b *rig) giveUpAgain(t *testing.T) {
	t.Helper()
	leases, err := b.stores.Queue.Claim(t.Context(), 1, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %d messages, %v", len(leases), err)
	}
	b.putPoison(t, queue.Poison{ID: "a", Kind: "k", Reason: "again", PoisonedAt: time.Now().UTC(), Worker: "vm_0",
		Origin: b.names.Queue, MessageID: leases[0].ID, Body: leases[0].Text()})
	if err := leases[0].Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *rig) expectReplayed(t *testing.T, g given, e queue.Envelope, before checkpoint.Record, fromScratch bool) {
	t.Helper()
	if n, _ := b.poisoned(); n != 0 {
		t.Errorf("%d poison messages are left, want none", n)
	}
	name := b.names.Queue
	if g.onDemand {
		name = b.names.OnDemand
	}
	messages := b.onQueue(t, name)
	if len(messages) != 1 || messages[0].ID != "a" || !messages[0].Resume || !messages[0].Deadline.Equal(e.Deadline) ||
		messages[0].Payload.Hash() != e.Payload.Hash() {
		t.Errorf("messages on %s = %+v, want that of the job, which says resume", name, messages)
	}
	r := b.record(t, "a")
	if r.Status != checkpoint.Open || r.Failures != 0 || r.ChargedExits != 0 || r.RunTime != 0 || r.Token == before.Token ||
		r.Owner != "spotctl@test" {
		t.Errorf("record = %+v, want it open, with nothing counted, written by the operator", r)
	}
	if !fromScratch && r.Outputs != before.Outputs || fromScratch && r.Outputs != (checkpoint.Outputs{}) {
		t.Errorf("record has outputs %+v, want those that were there: %t", r.Outputs, !fromScratch)
	}
	if !fromScratch && r.StateHash != before.StateHash || fromScratch && r.HasState() {
		t.Errorf("record has state %t, want the one that was there: %t", r.HasState(), !fromScratch)
	}
}

// The job's record decides, not its poison message. Neither an outcome nor a running
// job is overwritten.
func TestOnlyGivenUpJobs(t *testing.T) {
	for _, row := range []struct {
		name    string
		given   given
		change  func(*given) // the work that the id was used for
		replay  Action
		purge   Action
		message int // messages on the poison queue afterwards
	}{
		{"done", given{status: checkpoint.Done}, nil, Dropped, Dropped, 0},
		{"running", given{status: checkpoint.Running, state: "half"}, nil, Dropped, Dropped, 0},
		{"released", given{status: checkpoint.Open, state: "half"}, nil, Dropped, Dropped, 0},
		{"other kind", given{}, func(g *given) { g.kind = "other" }, Refused, Refused, 1},
		{"other payload", given{}, func(g *given) { g.payload = small }, Refused, Refused, 1},
	} {
		for _, purge := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, purge %t", row.name, purge), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *rig) {
					g := row.given
					g.id, g.payload, g.offload = "a", wide, true
					if row.change != nil {
						other := g
						row.change(&other)
						b.giveUp(t, other, queue.Envelope{ID: "a", Kind: orKind(other.kind), Payload: other.payload}, b.lease(t))
						g.gone = true // it is the other one's
					}
					b.put(t, g)
					before := b.record(t, "a")
					do, want := func() error { return b.Replay(t.Context(), all, true, b.report) }, row.replay
					if purge {
						do, want = func() error { return b.Purge(t.Context(), all, b.report) }, row.purge
					}
					if err := do(); err != nil || b.actions() != string(want) {
						t.Fatalf("actions = %s (%+v), %v, want %s", b.actions(), b.told, err, want)
					}
					if after := b.record(t, "a"); after.ETag != before.ETag {
						t.Errorf("record = %+v, want it untouched", after)
					}
					if n, visible := b.poisoned(); n != row.message || visible != n {
						t.Errorf("poison messages = %d, of which %d are visible, want %d", n, visible, row.message)
					}
					if n, want := b.payloads(), map[bool]int{true: 0, false: 1}[row.given.status == checkpoint.Done]; n != want {
						t.Errorf("payloads = %d, want %d", n, want)
					}
					if got := b.onQueue(t, b.names.Queue); len(got) != 0 {
						t.Errorf("messages = %+v, want none", got)
					}
				})
			})
		}
	}
}

func orKind(kind string) string {
	if kind == "" {
		return "k"
	}
	return kind
}

// lease is any message's.
func (b *rig) lease(t *testing.T) *queue.Lease {
	t.Helper()
	if err := b.stores.OnDemand.PutUnchanged(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	leases, err := b.stores.OnDemand.Claim(t.Context(), 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leases[0].Complete(t.Context()) }()
	return leases[0]
}

// A poison message whose twin was replayed before, and whose job is done or at
// work by now, is an old duplicate.
func TestOldDuplicate(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.put(t, given{id: "a", state: "half", payload: wide})
		twin := b.server.Messages(b.names.Poison)[0].Text
		if err := b.Replay(t.Context(), all, false, b.report); err != nil {
			t.Fatal(err)
		}
		if err := b.stores.Poison.PutUnchanged(t.Context(), twin); err != nil {
			t.Fatal(err)
		}
		b.told = nil
		if err := b.Replay(t.Context(), all, true, b.report); err != nil || b.actions() != "dropped" {
			t.Fatalf("replay of a twin whose text is gone = %+v, %v, want it dropped", b.told, err)
		}
		if diff := cmp.Diff(map[string][]string{"a": {"half"}}, b.work(t)); diff != "" {
			t.Errorf("commits (-want +got):\n%s", diff)
		}
		if err := b.stores.Poison.PutUnchanged(t.Context(), twin); err != nil {
			t.Fatal(err)
		}
		b.told = nil
		if err := b.Purge(t.Context(), all, b.report); err != nil || b.actions() != "dropped" || b.record(t, "a").Status != checkpoint.Done {
			t.Errorf("purge of a job that is done = %+v, %v, want the message dropped", b.told, err)
		}
	})
}

// TestPurge: the record says cancelled, and nothing else is left.
func TestPurge(t *testing.T) {
	for name, g := range map[string]given{
		"small":       {state: "half", payload: small},
		"offloaded":   {payload: wide, offload: true, twice: true},
		"record gone": {gone: true},
		"text apart":  {payload: wide, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				g.id = "a"
				e := b.put(t, g)
				if err := b.Purge(t.Context(), Selection{Names: []string{"a"}}, b.report); err != nil || !strings.HasPrefix(b.actions(), "purged") {
					t.Fatalf("actions = %s (%+v), %v", b.actions(), b.told, err)
				}
				r := b.record(t, "a")
				if n, _ := b.poisoned(); n != 0 || b.payloads() != 0 || r.Status != checkpoint.Cancelled || r.Size != 0 {
					t.Errorf("%d poison messages, %d payloads, record %+v: want none, none, cancelled", n, b.payloads(), r)
				}
				if err := b.stores.Queue.PutMoved(t.Context(), e, 0, b.stores.Payloads); err != nil {
					t.Fatal(err)
				}
				if done := b.work(t); len(done) != 0 {
					t.Errorf("an old message started the job again: %v", done)
				}
			})
		})
	}
}
