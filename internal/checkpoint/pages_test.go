package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// withPages gives the store units and chunks of about so many bytes, and pages of a 64th.
func (b *rig) withPages(unit int) {
	b.store.unit, b.store.page, b.store.cutter = unit, unit/64, func() *chunks.Cutter { return chunks.Scaled(unit) }
}

// stateIn returns the state in the body of a record.
func (b *rig) stateIn(t *testing.T, r Record) []byte {
	t.Helper()
	body := []byte(b.body(t))
	if r.Layout.Size == 0 {
		return body[:r.StateSize]
	}
	l, err := blocks.ParseLayout(body[r.Layout.At:][:r.Layout.Size], r.Layout.At, r.StateSize)
	must(t, err)
	state := make([]byte, r.StateSize)
	must(t, l.Read(state, 0, 1, func(data []byte, at int64) error {
		copy(data, body[at:])
		return nil
	}))
	return state
}

// restored demands that the claim restores the state.
func restored(t *testing.T, c *Claim, want []byte) {
	t.Helper()
	s, err := c.Restore(t.Context())
	must(t, err)
	got := s.State
	if s.Stream != nil {
		got = readAll(t, s)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the restored state has %d bytes and is not the saved one of %d", len(got), len(want))
	}
}

// changePages changes some bytes in each of so many random pages.
func changePages(state []byte, page, count int, random *rand.Rand) []byte {
	state = slices.Clone(state)
	for range count {
		at := random.IntN(len(state)/page) * page
		for range 1 + random.IntN(4) {
			state[at+random.IntN(page)] ^= byte(1 + random.IntN(255))
		}
	}
	return state
}

// edit changes a state as programs do: pages in place, bytes that are inserted, removed, moved or
// appended, the size, everything.
func edit(state []byte, page int, random *rand.Rand) []byte {
	more := make([]byte, 1+random.IntN(8*page))
	fillRandom(more, random.Uint64())
	if random.IntN(2) == 0 {
		more = more[:(len(more)+page-1)/page*page%(len(more)+1)] // whole pages, or none
	}
	at := random.IntN(len(state))
	switch random.IntN(9) {
	case 0:
		return slices.Insert(slices.Clone(state), at, more...)
	case 1:
		return slices.Concat(state, more)
	case 2:
		return slices.Clone(state[:len(state)-min(len(more), len(state)/2)])
	case 3:
		return slices.Concat(state[at:], state[:at])
	case 4:
		return slices.Delete(slices.Clone(state), at, min(at+len(more), len(state)))
	case 5:
		fresh := make([]byte, len(state))
		fillRandom(fresh, random.Uint64())
		return slices.Concat(fresh[:at], state[at:])
	default:
		return changePages(state, page, 1+random.IntN(len(state)/page/20+1), random)
	}
}

// TestPagesOfRandomHistories: after random changes of a state between saves, by several workers,
// every worker restores the last state.
func TestPagesOfRandomHistories(t *testing.T) {
	layouts := 0
	for seed := range uint64(proof.Times(6, 500)) {
		inBubble(t, func(t *testing.T, b *rig) {
			random := rand.New(rand.NewPCG(seed, 2))
			b.withPages(1024 << random.IntN(3))
			state := make([]byte, (2+random.IntN(60))*b.store.unit+random.IntN(b.store.unit))
			fillRandom(state, seed)
			c := b.store.Fresh(ours, "worker-0")
			for n := range 4 + random.IntN(12) {
				switch random.IntN(6) {
				case 0:
					must(t, c.Release(t.Context(), streamed(state)))
					c = b.acquire(t, ours, fmt.Sprint("worker-", n+1))
					if random.IntN(4) > 0 {
						restored(t, c, state)
					}
				case 1:
					must(t, c.Fail(t.Context(), Snapshot{}, "no"))
					c = b.acquire(t, ours, fmt.Sprint("worker-", n+1))
					if s, err := c.Restore(t.Context()); err != nil {
						t.Fatal(err)
					} else if s != nil && s.Stream != nil {
						state = readAll(t, s)
					}
				}
				must(t, c.Save(t.Context(), streamed(state)))
				r := b.read(t)
				if got := b.stateIn(t, r); !bytes.Equal(got, state) {
					t.Fatalf("seed %d, save %d: the record has not the state", seed, n)
				}
				if r.Layout.Size > 0 {
					layouts++
				}
				state = edit(state, b.store.page, random)
			}
		})
	}
	if layouts == 0 {
		t.Error("no history had a state with a layout")
	}
}

// handedOver releases a claim, and returns the claim of another worker that has restored the state.
func (b *rig) handedOver(t *testing.T, c *Claim, want []byte) *Claim {
	t.Helper()
	must(t, c.Release(t.Context(), Snapshot{}))
	c = b.acquire(t, ours, "worker-2")
	restored(t, c, want)
	return c
}

// TestMovedPagesSent: pages that are inserted in the middle of a state, or removed there, move all
// later ones. Only these pages and the changed ones are sent, also by a worker that has restored
// the state, and with more memory in front of it.
func TestMovedPagesSent(t *testing.T) {
	size := proof.Times(16<<20, 64<<20)
	inBubble(t, func(t *testing.T, b *rig) {
		b.store = NewStore(b.store.container)
		random := rand.New(rand.NewPCG(1, 1))
		state, more := make([]byte, size), make([]byte, 5*blocks.Page)
		fillRandom(state, 1)
		var sent atomic.Int64
		b.OnCall(func(c storage.Call) storage.Fault {
			sent.Add(c.Size)
			return storage.Fault{}
		})
		c := b.store.Fresh(ours, "worker-1")
		must(t, c.Save(t.Context(), streamed(state)))
		for n, change := range []func() []byte{
			func() []byte { return slices.Insert(state, size/2, more[:blocks.Page]...) },
			func() []byte { return slices.Insert(state, 0, more...) },
			func() []byte { return slices.Delete(state, size/3, size/3+3*blocks.Page) },
			func() []byte { return slices.Concat(state[size/2:], state[:size/2]) },
			func() []byte { return state },
		} {
			fillRandom(more, uint64(n+2))
			state = changePages(change(), blocks.Page, size/blocks.Page/100, random)
			sent.Store(0)
			must(t, c.Save(t.Context(), streamed(state)))
			r := b.read(t)
			if sent := sent.Load(); sent > int64(3*size/100) || r.StateHash != blocks.HashOf(state, blocks.Unit, r.StateKey) {
				t.Errorf("save %d sent %d bytes, want at most three times the %d that changed", n, sent, size/100)
			}
			if n == 1 {
				c = b.handedOver(t, c, state)
			}
		}
		c = b.acquire(t, ours, "worker-3")
		restored(t, c, state)
	})
}

// TestLayoutIsBounded: a body is at most half as large again as the state and the pages of one
// save. Then all is sent in whole blocks.
func TestLayoutIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.withPages(16 << 10)
		random := rand.New(rand.NewPCG(3, 3))
		state := make([]byte, 32*b.store.unit)
		fillRandom(state, 1)
		c := b.store.Fresh(ours, "worker-1")
		must(t, c.Save(t.Context(), streamed(state)))
		whole, size := 0, int64(len(state))
		for n := range 30 {
			state = changePages(state, b.store.page, len(state)/b.store.page/20, random)
			must(t, c.Save(t.Context(), streamed(state)))
			r := b.read(t)
			if r.Layout.Size == 0 {
				whole++
			}
			if limit := size*3/2 + size/20 + 2*r.Layout.Size; r.Size > limit {
				t.Fatalf("save %d: the body has %d bytes, want at most %d for a state of %d", n, r.Size, limit, size)
			}
		}
		if whole < 1 || whole > 6 {
			t.Errorf("%d of 30 saves were whole, want one in about ten", whole)
		}
		if got := b.stateIn(t, b.read(t)); !bytes.Equal(got, state) {
			t.Error("the record has not the last state")
		}
	})
}

// patched returns a claim whose record has a layout, and the state.
func (b *rig) patched(t *testing.T) (c *Claim, state []byte) {
	t.Helper()
	b.withPages(4 << 10)
	state = make([]byte, 20*b.store.unit+100)
	fillRandom(state, 7)
	c = b.store.Fresh(ours, "worker-1")
	must(t, c.Save(t.Context(), streamed(state)))
	state[9*b.store.unit]++
	state[17*b.store.unit]++
	must(t, c.Save(t.Context(), streamed(state)))
	if b.read(t).Layout.Size == 0 {
		t.Fatal("the record has no layout")
	}
	b.ResetCounts()
	return c, state
}

// TestDamagedLayout: a changed byte anywhere in the body, or a body that is cut off, is found as
// damage, unless it is no part of the state.
func TestDamagedLayout(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c, state := b.patched(t)
		must(t, c.Release(t.Context(), Snapshot{}))
		r, body := b.read(t), []byte(b.body(t))
		blob := b.store.blob(ours.ID)
		unused := 0
		step := proof.Times(997, 101)
		for at := 0; at < len(body)+step; at += step {
			damaged := slices.Clone(body)
			switch {
			case at >= len(body): // the last step is to cut the body
				damaged = damaged[:len(body)-5]
			case at >= len(body)-2*step:
				damaged[int(r.Layout.At)+at%int(r.Layout.Size)] ^= 0x55
			default:
				damaged[at] ^= 0x55
			}
			_, err := blob.Upload(t.Context(), streaming.NopCloser(bytes.NewReader(damaged)), &blockblob.UploadOptions{Metadata: r.metadata()})
			must(t, err)
			err = readRestored(t, b)
			switch {
			case err == nil && bytes.Equal(b.stateIn(t, r), state):
				unused++
			case !errors.Is(err, ErrDamaged):
				t.Fatalf("damage at %d of %d: %v, want ErrDamaged", at, len(body), err)
			}
		}
		if unused > len(body)/step/10+1 {
			t.Errorf("%d changes were in unused bytes, want few", unused)
		}
	})
}

// readRestored acquires the record and reads its state to the end.
func readRestored(t *testing.T, b *rig) error {
	t.Helper()
	c := b.acquire(t, ours, "worker-2")
	r, err := c.OpenState(t.Context())
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		_ = r.Close()
	}
	must(t, c.Fail(t.Context(), Snapshot{}, "no"))
	return err
}

// TestKilledWhileSendingPages: a worker dies after each call of a save. Its successor restores the
// old or the new state, and saves pages again.
func TestKilledWhileSendingPages(t *testing.T) {
	for after := range 12 {
		inBubble(t, func(t *testing.T, b *rig) {
			c, state := b.patched(t)
			next := slices.Clone(state)
			for at := range 18 { // blocks of pages and of new content
				if next[(2+at)*b.store.unit-1]++; at%5 == 0 {
					fillRandom(next[(at+1)*b.store.unit:][:b.store.unit], uint64(at))
				}
			}
			var calls atomic.Int64
			b.OnCall(func(storage.Call) storage.Fault {
				n := int(calls.Add(1))
				return storage.Fault{DropRequest: n > after, DropReply: n == after}
			})
			err := c.Save(t.Context(), streamed(next))
			b.OnCall(nil)
			saved := b.read(t).StateHash != blocks.HashOf(state, b.store.unit, b.read(t).StateKey)
			if err == nil && !saved {
				t.Fatalf("after %d calls: the save succeeded without a state", after)
			}
			c = b.acquire(t, ours, "worker-2")
			if saved {
				state = next
			}
			restored(t, c, state)
			state[3*b.store.unit]++
			must(t, c.Release(t.Context(), streamed(state)))
			restored(t, b.acquire(t, ours, "worker-3"), state)
		})
	}
}
