package checkpoint

import (
	"bytes"
	"errors"
	"testing"
)

func TestRestore(t *testing.T) {
	for name, state := range map[string]string{"small": "state", "empty": "", "large": string(make([]byte, 3<<20))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				sent := Snapshot{State: []byte(state), Version: 3, Fraction: 0.5, Text: "half\nway"}
				c := b.store.Fresh(ours, "worker-1")
				if err := c.Release(t.Context(), sent); err != nil {
					t.Fatal(err)
				}
				got, err := b.acquire(t, ours, "worker-2").Restore(t.Context())
				if got == nil || err != nil {
					t.Fatalf("Restore = %v, %v, want what was released", got, err)
				}
				if !bytes.Equal(got.State, sent.State) || got.Version != 3 || got.Fraction != 0.5 || got.Text != sent.Text {
					t.Errorf("restored %d bytes, version %d, at %v, %q, want what was released", len(got.State), got.Version, got.Fraction, got.Text)
				}
			})
		})
	}
}

// A body that does not match its hash is reported, for any cause.
func TestRestoreDamaged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.seed(t, Record{Status: Open, MessageID: ours.MessageID, StateHash: hashOf([]byte("state")), StateSize: 5}, "stale")
		c := b.acquire(t, ours, "worker-1")
		if got, err := c.Restore(t.Context()); !errors.Is(err, ErrDamaged) {
			t.Errorf("Restore of another body = %v, %v, want ErrDamaged", got, err)
		}
		if err := c.Fail(t.Context(), Snapshot{}, "damaged"); err != nil {
			t.Errorf("Fail after a damaged state = %v, want no error", err)
		}
	})
}

// A record that was removed takes its state along: the job starts afresh, on a
// record that fences the owner of the old one.
func TestRestoreRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		stale := b.claimed(t)
		c := b.acquire(t, ours, "worker-2")
		b.remove(t)
		if got, err := c.Restore(t.Context()); got != nil || err != nil {
			t.Errorf("Restore of a removed record = %v, %v, want a fresh start", got, err)
		}
		if r := b.read(t); r.Status != Running || r.Generation != 2 || r.HasState() {
			t.Errorf("record = %+v, want it created again without a state", r)
		}
		if conflict := conflictIn(stale.Save(t.Context(), Snapshot{State: []byte("stale")})); conflict == nil || conflict.Ruling != Fenced {
			t.Errorf("Save by the owner before = %v, want it fenced", conflict)
		}
	})
}

// A refused read of the state is decided by one read of the record, and never
// reported as damage.
func TestRestoreDisplaced(t *testing.T) {
	for _, row := range []struct {
		name string
		happ func(t *testing.T, b *rig, c *Claim)
		want Ruling // 0: continue
	}{
		{"our own late write", func(t *testing.T, b *rig, c *Claim) {
			r := b.read(t)
			r.Write++
			if _, err := b.store.put(t.Context(), &r, r.ETag, content{}); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"acquired by another", func(t *testing.T, b *rig, _ *Claim) { b.acquire(t, ours, "worker-3") }, Fenced},
		{"cancelled", func(t *testing.T, b *rig, _ *Claim) { b.writeAsOperator(t, func(r *Record) { r.Status = Cancelled }) }, Finish},
		{"opened", func(t *testing.T, b *rig, _ *Claim) { b.writeAsOperator(t, func(r *Record) { r.Status = Open }) }, PutBack},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.claimed(t)
				c := b.acquire(t, ours, "worker-2")
				row.happ(t, b, c)
				got, err := c.Restore(t.Context())
				if row.want == 0 {
					if err != nil || got == nil || string(got.State) != "state 1" {
						t.Errorf("Restore = %v, %v, want state 1", got, err)
					}
					if err := c.Save(t.Context(), Snapshot{State: []byte("state 2")}); err != nil {
						t.Errorf("Save after it = %v, want no error", err)
					}
					return
				}
				if conflict := conflictIn(err); conflict == nil || conflict.Ruling != row.want || errors.Is(err, ErrDamaged) {
					t.Errorf("Restore = %v, want a conflict: %s", err, row.want)
				}
			})
		})
	}
}
