package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestEnlist: the record of a job of a group exists before its message. A second enlisting
// changes nothing, and the group stays through the life of the job.
func TestEnlist(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		s := b.store
		d := Delivery{ID: "a", Kind: "k", PayloadHash: hashOf(nil), Group: "night", Deadline: noon, Estimate: time.Hour}
		if found, err := s.Enlist(t.Context(), d, "producer@desk"); err != nil || found.Version != 0 {
			t.Fatalf("Enlist = %+v, %v, want no record before", found, err)
		}
		if got, want := b.Counts(), map[string]int64{storage.OpPutBlockList: 1}; !cmp.Equal(got, want) {
			t.Errorf("Enlist took the calls %v, want %v", got, want)
		}
		r, err := s.Read(t.Context(), "a")
		if err != nil || r.Status != Open || r.Group != "night" || r.Generation != 0 || r.Owner != "producer@desk" || !r.Deadline.Equal(noon) {
			t.Fatalf("record = %+v, %v", r, err)
		}
		if found, err := s.Enlist(t.Context(), d, "other"); err != nil || found.Token != r.Token {
			t.Errorf("Enlist again = %+v, %v, want the record unchanged", found, err)
		}
		d.MessageID = "m"
		older := d
		older.Group = "" // its worker does not know the field
		claim, err := s.Acquire(t.Context(), older, r, "w")
		if err != nil {
			t.Fatal(err)
		}
		if err := claim.Commit(t.Context(), []byte("result")); err != nil {
			t.Fatal(err)
		}
		r, err = s.Read(t.Context(), "a")
		if err != nil || r.Status != Done || r.Group != "night" || r.Generation != 1 {
			t.Errorf("record at the end = %+v, %v, want it done in its group", r, err)
		}
	})
}

// TestEnlistRefuses: a job is in one group, and its id stands for one work.
func TestEnlistRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		s := b.store
		d := Delivery{ID: "a", Kind: "k", PayloadHash: hashOf(nil), Group: "night"}
		if _, err := s.Enlist(t.Context(), d, "p"); err != nil {
			t.Fatal(err)
		}
		plain := Delivery{ID: "plain", Kind: "k", PayloadHash: hashOf(nil), MessageID: "m"}
		if _, err := s.Create(t.Context(), plain, "w"); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			change func(*Delivery)
			want   error
		}{
			"another group": {func(d *Delivery) { d.Group = "day" }, ErrOtherGroup},
			"another kind":  {func(d *Delivery) { d.Kind = "other" }, ErrOtherWork},
			"in no group":   {func(d *Delivery) { d.ID = "plain" }, ErrOtherGroup},
		} {
			other := d
			c.change(&other)
			if _, err := s.Enlist(t.Context(), other, "p"); !errors.Is(err, c.want) {
				t.Errorf("%s: Enlist = %v, want %v", name, err, c.want)
			}
			if _, err := s.CheckGroup(t.Context(), other); !errors.Is(err, c.want) {
				t.Errorf("%s: CheckGroup = %v, want %v", name, err, c.want)
			}
		}
	})
}

// TestEnlistWithoutAccess: a refusal is an error at once, of a look for the group too.
func TestEnlistWithoutAccess(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		d := Delivery{ID: "a", Kind: "k", PayloadHash: hashOf(nil), Group: "night"}
		if r, err := b.store.CheckGroup(t.Context(), d); err != nil || r.Version != 0 {
			t.Errorf("CheckGroup of no record = %+v, %v, want none", r, err)
		}
		b.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		b.ResetCounts()
		begun := time.Now()
		if _, err := b.store.Enlist(t.Context(), d, "p"); err == nil || b.Counts()[storage.OpGetBlobProperties] != 0 || time.Since(begun) != 0 {
			t.Errorf("Enlist = %v after %s, want the refusal at once, with no look for a record", err, time.Since(begun))
		}
		if _, err := b.store.CheckGroup(t.Context(), d); err == nil {
			t.Error("CheckGroup without access = <nil>, want an error")
		}
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
		if _, err := b.store.Enlist(t.Context(), d, "p"); err == nil {
			t.Error("Enlist without a network = <nil>, want an error")
		}
		b.OnCall(nil)
		if _, err := b.store.Enlist(t.Context(), d, "p"); err != nil {
			t.Errorf("Enlist afterwards = %v", err)
		}
	})
}

// TestEnlistLostReply: a write that took effect although its reply was lost counts as made.
func TestEnlistLostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.ResetCounts()
		lost := false
		b.OnCall(func(c storage.Call) storage.Fault {
			drop := c.Operation == storage.OpPutBlockList && !lost
			lost = lost || drop
			return storage.Fault{DropReply: drop}
		})
		found, err := b.store.Enlist(t.Context(), Delivery{ID: "a", Kind: "k", PayloadHash: hashOf(nil), Group: "night"}, "p")
		if err != nil || found.Version != 0 {
			t.Errorf("Enlist = %+v, %v, want no record before", found, err)
		}
		if !lost {
			t.Error("no reply was lost")
		}
	})
}
