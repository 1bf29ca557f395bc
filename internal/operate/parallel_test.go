package operate

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestCallsAtOnce: each command makes several calls at once, up to its limit, however many jobs
// there are.
func TestCallsAtOnce(t *testing.T) {
	const jobs = 40
	poison := func(t *testing.T, b *rig) {
		for i := range jobs {
			b.put(t, given{id: fmt.Sprint("job-", i)})
		}
	}
	old := func(put func(t *testing.T, b *rig, id string)) func(t *testing.T, b *rig) {
		return func(t *testing.T, b *rig) {
			for i := range jobs {
				put(t, b, fmt.Sprint("job-", i))
			}
			time.Sleep(MinCleanAge)
			b.server.SetFullPages()
		}
	}
	clean := func(t *testing.T, b *rig) error {
		_, err := b.cleaner(t).Clean(t.Context(), nil, func(_ string, err error) { t.Error(err) })
		return err
	}
	for name, row := range map[string]struct {
		put  func(t *testing.T, b *rig)
		act  func(t *testing.T, b *rig) error
		most int
	}{
		"replay": {poison, func(t *testing.T, b *rig) error { return b.Replay(t.Context(), all, false, b.report) }, parallel},
		"list":   {poison, func(t *testing.T, b *rig) error { return b.All(t.Context(), func(Item) error { return nil }) }, parallel},
		"cancel": {func(*testing.T, *rig) {}, func(t *testing.T, b *rig) error {
			ids := make([]string, jobs)
			for i := range ids {
				ids[i] = fmt.Sprint("job-", i)
			}
			return b.canceller(t).Cancel(t.Context(), slices.Values(ids), func(CancelOutcome) error { return nil })
		}, cancelParallel},
		"clean":   {old(func(t *testing.T, b *rig, id string) { b.ended(t, id, "k", checkpoint.Done, 0) }), clean, cleanParallel},
		"garbage": {old(func(t *testing.T, b *rig, id string) { b.send(t, id) }), clean, cleanParallel},
		"orphans": {
			old(func(t *testing.T, b *rig, id string) {
				b.strand(t, given{id: id, payload: wide, offload: true, status: checkpoint.Open})
			}),
			func(t *testing.T, b *rig) error { _, err := b.Orphans(t.Context(), 0); return err }, parallel,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				row.put(t, b)
				var mu sync.Mutex // guards active and most
				active, most := 0, 0
				b.server.OnCall(func(storage.Call) storage.Fault {
					mu.Lock()
					defer mu.Unlock()
					active++
					most = max(most, active)
					return storage.Fault{Before: time.Second}
				})
				b.server.OnResult(func(storage.Result) {
					mu.Lock()
					defer mu.Unlock()
					active--
				})
				if err := row.act(t, b); err != nil {
					t.Fatal(err)
				}
				if most != row.most {
					t.Errorf("calls at once = %d, want %d", most, row.most)
				}
			})
		})
	}
}
