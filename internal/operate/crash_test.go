package operate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// fault is a failure of one of an operator's storage calls.
type fault struct {
	name   string
	death  bool // nothing that is sent after that call arrives
	effect bool // the call has its effect
}

var faults = []fault{
	{"request lost", false, false},
	{"reply lost", false, true},
	{"death before", true, false},
	{"death after the effect", true, true},
}

// TestEveryCall makes each fault happen at each storage call of a replay and of a
// purge, a quick run at a sample of them; then the same action is repeated. In every case, a replayed job is committed
// once, a purged one never, and no message and no payload is left.
func TestEveryCall(t *testing.T) {
	step := proof.Times(4, 1)
	for name, act := range map[string]func(context.Context, *rig) error{
		"replay":              func(ctx context.Context, b *rig) error { return b.Replay(ctx, all, false, b.report) },
		"replay from scratch": func(ctx context.Context, b *rig) error { return b.Replay(ctx, all, true, b.report) },
		"purge":               func(ctx context.Context, b *rig) error { return b.Purge(ctx, all, b.report) },
	} {
		for _, m := range faults {
			t.Run(name+", "+m.name, func(t *testing.T) {
				points := 0
				for at := 1 + int(proof.Seed(t)%uint64(step)); ; at += step {
					reached := false
					inBubble(t, func(t *testing.T, b *rig) { reached = cutShort(t, b, act, m, at, name) })
					if !reached || t.Failed() {
						break
					}
					points++
				}
				if points < 15/step {
					t.Errorf("calls at which it happened = %d, want all of them", points)
				}
				t.Logf("at each of %d calls", points)
			})
		}
	}
}

// cutShort runs act with a fault, then to its end, and checks the outcome.
func cutShort(t *testing.T, b *rig, act func(context.Context, *rig) error, m fault, at int, name string) (reached bool) {
	b.put(t, given{id: "plain", state: "half", payload: small})
	b.put(t, given{id: "wide", state: "half", outputs: 2, payload: wide, twice: true})
	b.put(t, given{id: "apart", state: "half", payload: wide, offload: true, onDemand: true})
	b.put(t, given{id: "gone", payload: small, gone: true})

	b.link.effect, b.link.drop = m.effect, at
	if m.death {
		b.link.drop, b.link.dieAt = 0, at
	}
	_ = act(t.Context(), b) // however it ended: it is done again
	reached = b.link.count() >= at
	b.restart(t)
	for range 3 {
		if n, _ := b.poisoned(); n == 0 {
			break
		}
		time.Sleep(hold) // until a dead operator's messages are visible
		if err := act(t.Context(), b); err != nil {
			t.Errorf("call %d: repeated: %v", at, err)
		}
	}
	if n, _ := b.poisoned(); n != 0 {
		t.Errorf("call %d: %d poison messages are left: %+v", at, n, b.told)
	}
	b.expectEnded(t, name, at)
	return reached
}

func (b *rig) expectEnded(t *testing.T, name string, at int) {
	t.Helper()
	done := b.work(t)
	for _, id := range []string{"plain", "wide", "apart", "gone"} {
		if files := b.record(t, id).Outputs.Files; (files == 2) != (name == "replay" && id == "wide") {
			t.Errorf("call %d: job %s has %d outputs after a %s", at, id, files, name)
		}
		status, commits, state := checkpoint.Done, 1, ""
		switch {
		case name == "purge":
			status, commits = checkpoint.Cancelled, 0
		case name == "replay" && id != "gone":
			state = "half"
		}
		if r := b.record(t, id); r.Status != status || len(done[id]) != commits || commits == 1 && done[id][0] != state {
			t.Errorf("call %d: job %s is %s, committed from the states %q, want it %s, %d commits from %q", at, id, r.Status, done[id], status,
				commits, state)
		}
	}
	// Only a text whose poison message is gone may be left: the text is deleted last.
	// Its age rule takes it away.
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		if len(blob.Name) < 7 || blob.Name[:7] != "poison/" {
			t.Errorf("call %d: payload %s is left", at, blob.Name)
		}
	}
}

// A reader that has seen enough leaves no message hidden, not even the messages that
// were claimed with the last message it saw.
func TestReaderStops(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 40 {
			b.put(t, given{id: fmt.Sprintf("job-%d", i)})
		}
		enough := errors.New("enough")
		for most := range 40 {
			read := 0
			err := b.All(t.Context(), func(Item) error {
				if read++; read > most {
					return enough
				}
				return nil
			})
			if n, visible := b.poisoned(); !errors.Is(err, enough) || n != 40 || visible != 40 {
				t.Errorf("stopped after %d: %v; %d of %d messages are visible, want all", most, err, visible, n)
			}
		}
	})
}

// TestTextInAnotherPayload: a poison message that names another job's payload as its text is refused, and
// its purge leaves that job alone.
func TestTextInAnotherPayload(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e := b.put(t, given{id: "b", payload: wide, offload: true, status: checkpoint.Running})
		if _, err := b.stores.Account.Queue(b.names.Poison).ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		b.putPoison(t, queue.Poison{ID: "x", Kind: "k", Reason: "made up", PoisonedAt: time.Now(), MessageID: "m-1", BodyBlob: "3e2/b/" +
			e.Payload.Hash()})
		before := b.record(t, "b")
		if err := b.Replay(t.Context(), all, false, b.report); err != nil || b.actions() != "refused" {
			t.Errorf("replay = %+v, %v, want refused", b.told, err)
		}
		b.told = nil
		if err := b.Purge(t.Context(), all, b.report); err != nil || b.actions() != "purged" {
			t.Errorf("purge = %+v, %v, want purged", b.told, err)
		}
		if n, _ := b.poisoned(); n != 0 || b.payloads() != 1 || b.record(t, "b").ETag != before.ETag {
			t.Errorf("%d poison messages and %d payloads are left, want none and that of the other job, unchanged", n, b.payloads())
		}
	})
}

// putText puts any text on the poison queue.
func (b *rig) putText(t *testing.T, text string) {
	t.Helper()
	if err := b.stores.Poison.PutUnchanged(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}
