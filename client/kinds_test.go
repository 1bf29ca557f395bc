package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestUnknownKind: a kind that no live worker has is reported once in ten minutes by Put, once by
// PutMany, and fails the job only on demand.
func TestUnknownKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []error
		b := setupBare(t, Options{UnknownKind: func(err error) { seen = append(seen, err) }})
		b.server.SetFullPages()
		if err := b.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		beat := func() {
			err := b.stores.Workers.Write(t.Context(), presence.Presence{Worker: "w", State: "process", TakesFrom: []string{b.stores.Names.Queue},
				Kinds: []string{"digest", "resize"}})
			if err != nil {
				t.Fatal(err)
			}
		}
		beat()
		put := func(kind string, reports int, listings int64) {
			t.Helper()
			seen = nil
			b.server.ResetCounts()
			if _, err := b.Put(t.Context(), Spec{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			if n := b.server.Counts()[storage.OpListBlobs]; len(seen) != reports || n != listings {
				t.Errorf("Put of kind %s: reports %v after %d listings, want %d after %d", kind, seen, n, reports, listings)
			}
		}
		put("digset", 1, 1)
		unknown, ok := errors.AsType[*UnknownKindError](seen[0])
		if !ok || unknown.Kind != "digset" || unknown.Nearest() != "digest" || unknown.Workers != 1 || len(unknown.Kinds) != 2 {
			t.Errorf("report = %+v, want the kind and those that there are", unknown)
		}
		put("digset", 0, 0)
		put("digest", 0, 1)
		put("resise", 1, 1)
		time.Sleep(10*time.Minute - time.Second)
		beat()
		put("digset", 0, 0)
		time.Sleep(time.Second)
		put("digset", 1, 1)

		seen = nil
		many := PutOptions{UnknownKind: func(err error) { seen = append(seen, err) }}
		sum, err := b.PutMany(t.Context(), Specs(Spec{Kind: "digset"}, Spec{Kind: "digset"}, Spec{Kind: "digest"}), many)
		if err != nil || sum.Put != 3 || len(seen) != 1 || !errors.As(seen[0], new(*UnknownKindError)) {
			t.Errorf("PutMany = %+v, %v with reports %v, want one", sum, err, seen)
		}
		var failed []error
		sum, err = b.PutMany(t.Context(), Specs(Spec{Kind: "digset"}, Spec{Kind: "digest"}), PutOptions{KnownKinds: true,
			Report: func(r PutResult) error {
				if r.Err != nil {
					failed = append(failed, r.Err)
				}
				return nil
			}})
		if err != nil || sum.Put != 1 || len(failed) != 1 || !errors.As(failed[0], new(*UnknownKindError)) {
			t.Errorf("PutMany of known kinds = %+v, %v with failures %v, want one", sum, err, failed)
		}
	})
}
