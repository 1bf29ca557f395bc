package checkpoint

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// gauge counts how many calls are in flight.
type gauge struct {
	mu       sync.Mutex
	now, max int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.max = max(g.max, g.now)
}

// read returns how many calls are in flight, and how many were at most.
func (g *gauge) read() (now, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now, g.max
}

// watch counts the blocks in flight.
func (g *gauge) watch(l *link) {
	l.step = func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if r.URL.Query().Get("comp") != "block" {
			return send()
		}
		g.add(1)
		defer g.add(-1)
		return send()
	}
}

// slowBlocks makes every block take that long.
func (b *rig) slowBlocks(d time.Duration) {
	b.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutBlock {
			return storage.Fault{Before: d}
		}
		return storage.Fault{}
	})
}

// manyBlocks are the letters of a state of so many different blocks.
func manyBlocks(n int) string {
	letters := make([]byte, n)
	for i := range letters {
		letters[i] = byte(i)
	}
	return string(letters)
}

// Blocks are sent side by side, but only so many: that bounds a save's memory.
func TestStagingIsParallel(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c, sending := b.claimedLarge(t, "a"), gauge{}
		sending.watch(b.link)
		b.slowBlocks(time.Second)
		begun := time.Now()
		b.save(t, c, manyBlocks(200))
		if _, most := sending.read(); most != 40 {
			t.Errorf("blocks on their way at once = %d at most, want 40", most)
		}
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("200 blocks of a second each took %s, want 8s at most", took)
		}
		if got := len(b.store.budget); got != 0 {
			t.Errorf("places still reserved after the save = %d, want 0", got)
		}
	})
}

// A save that is cut short returns at once, leaves nothing running (the bubble
// would not end) and the checkpoint before in place. The next one continues it.
func TestCancelledSave(t *testing.T) {
	stop := errors.New("evicted")
	for name, slow := range map[string]string{"while blocks are sent": storage.OpPutBlock, "during the commit": storage.OpPutBlockList} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.claimedLarge(t, "abcd")
				var begunCalls, endedCalls atomic.Int64
				b.OnCall(func(call storage.Call) storage.Fault {
					switch {
					case call.Operation != slow:
						return storage.Fault{}
					case begunCalls.Add(1) <= 4 && slow == storage.OpPutBlock:
						return storage.Fault{} // some blocks arrive
					}
					return storage.Fault{Before: time.Hour}
				})
				b.OnResult(func(r storage.Result) {
					if r.Operation == slow {
						endedCalls.Add(1)
					}
				})
				before := b.read(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(stop) })
				begun := time.Now()
				err := c.Save(ctx, streamed(large("ABCDEFGHIJKL")))
				if took := time.Since(begun); err == nil || conflictIn(err) != nil || took != time.Second {
					t.Errorf("Save = %v after %s, want an error at once", err, took)
				}
				if begun, ended := begunCalls.Load(), endedCalls.Load(); begun != ended {
					t.Errorf("calls under way after Save = %d, want 0", begun-ended)
				}
				if b.read(t).ETag != before.ETag {
					t.Error("the save changed the record")
				}
				b.holds(t, "abcd")
				arrived := int64(len(b.Blobs(recordsName)[0].Staged))
				if want := map[string]int64{storage.OpPutBlock: 4, storage.OpPutBlockList: 12}[slow]; arrived != want {
					t.Fatalf("blocks that arrived = %d, want %d", arrived, want)
				}
				b.OnCall(nil)
				b.ResetCounts()
				must(t, c.Save(t.Context(), streamed(large("ABCDEFGHIJKL"))))
				if got := b.Counts()[storage.OpPutBlock]; got != 12-arrived {
					t.Errorf("blocks sent by the next save = %d, want the %d that had not arrived", got, 12-arrived)
				}
				b.holds(t, "ABCDEFGHIJKL")
			})
		})
	}
}

// A worker that was believed dead and returns during its successor's save does not
// change it: the same id means the same content, and its commit fails.
func TestStaleOwnerStages(t *testing.T) {
	for _, moment := range []string{storage.OpGetBlockList, storage.OpPutBlock, storage.OpPutBlockList, "after"} {
		t.Run(moment, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				stale := b.claimedLarge(t, "abcd")
				c := b.acquire(t, ours, "worker-2")
				var struck atomic.Bool
				strike := func() {
					if struck.Swap(true) {
						return
					}
					conflict := conflictIn(stale.Save(t.Context(), streamed(large("Zbcy"))))
					if conflict == nil || conflict.Ruling != Fenced {
						t.Errorf("Save by the owner before = %v, want it fenced", conflict)
					}
				}
				b.OnCall(func(call storage.Call) storage.Fault {
					if call.Operation == moment {
						strike()
					}
					return storage.Fault{}
				})
				b.save(t, c, "Xbcy")
				if moment == "after" {
					strike()
				}
				b.OnCall(nil)
				if !struck.Load() {
					t.Fatal("the owner before did not come back")
				}
				if r := b.read(t); r.Owner != "worker-2" || r.Generation != 2 {
					t.Errorf("record = owner %s, generation %d, want worker-2, 2", r.Owner, r.Generation)
				}
				b.holds(t, "Xbcy")
				b.ResetCounts()
				b.save(t, c, "XbQy")
				r := restore(t, b.acquire(t, ours, "worker-3"))
				readRest(t, r, "XbQy", 0)
			})
		})
	}
}
