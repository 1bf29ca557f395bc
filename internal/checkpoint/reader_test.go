package checkpoint

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// slowReads makes every read of a body take that long, and counts reads in flight.
func (b *rig) slowReads(d time.Duration) *gauge {
	var reading gauge
	b.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != storage.OpGetBlob {
			return storage.Fault{}
		}
		reading.add(1)
		return storage.Fault{Before: d}
	})
	b.OnResult(func(r storage.Result) {
		if r.Operation == storage.OpGetBlob {
			reading.add(-1)
		}
	})
	return &reading
}

// Ranges are read ahead, but only so many: that bounds a restore's memory.
func TestRangesAreReadAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c, reading := b.claimedLarge(t, severalReads), b.slowReads(time.Second)
		begun := time.Now()
		readRest(t, restore(t, c), severalReads, 0)
		if _, most := reading.read(); most != 8 || readAhead != 8 {
			t.Errorf("ranges on their way at once = %d at most, want 8", most)
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("11 ranges of a second each took %s, want 2s", took)
		}
	})
}

// All readers of a store share the memory for reading ahead, each may read one range
// without it, and every reader gives its part back when it ends.
func TestReadersShareABudget(t *testing.T) {
	const readers = 5
	for name, end := range map[string]func(t *testing.T, c *Claim, r io.ReadCloser, stop func()){
		"read to its end": func(t *testing.T, _ *Claim, r io.ReadCloser, _ func()) { readRest(t, r, severalReads, 1) },
		"closed":          func(t *testing.T, _ *Claim, r io.ReadCloser, _ func()) { must(t, r.Close()) },
		"abandoned":       func(_ *testing.T, c *Claim, _ io.ReadCloser, _ func()) { c.CloseReaders() },
		"stopped":         func(_ *testing.T, _ *Claim, _ io.ReadCloser, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c, reading := b.claimedLarge(t, severalReads), b.slowReads(time.Second)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var all []io.ReadCloser
				for range readers {
					r, err := c.OpenState(ctx)
					must(t, err)
					all = append(all, r)
				}
				first := make(chan error)
				for _, r := range all {
					go func() {
						_, err := io.ReadFull(r, make([]byte, 1))
						first <- err
					}()
				}
				for range readers {
					must(t, <-first)
				}
				if _, most := reading.read(); most != readers+transferBuffers {
					t.Errorf("ranges on their way at once = %d at most, want %d", most, readers+transferBuffers)
				}
				for _, r := range all {
					end(t, c, r, stop)
				}
				synctest.Wait()
				if got := len(b.store.budget); got != 0 {
					t.Errorf("places still reserved after the readers ended = %d, want 0", got)
				}
			})
		})
	}
}

// In an outage one range is tried again and again, not all that are to be read ahead.
func TestOutageRepeatsOneRange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		r := restore(t, b.claimedLarge(t, severalReads))
		readSome(t, r, 1)
		begun, trying := time.Now(), map[int64]bool{}
		b.OnCall(func(c storage.Call) storage.Fault {
			down := time.Since(begun) < 10*time.Minute && c.Range != nil
			if down && time.Since(begun) > time.Minute {
				trying[c.Range.Offset] = true
			}
			return storage.Fault{DropRequest: down}
		})
		readRest(t, r, severalReads, 1)
		if took := time.Since(begun); took < 10*time.Minute || len(trying) != 1 {
			t.Errorf("all was read after %s, %d ranges were tried during the outage, want 10m or more, 1", took, len(trying))
		}
	})
}
