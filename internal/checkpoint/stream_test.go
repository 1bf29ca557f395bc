package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// oneRead is the part of a state that one call reads, severalReads a state that takes
// more calls than are read ahead.
const (
	oneRead      = rangeUnits * chunk
	severalReads = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR"
)

// restore returns the recorded state as its new owner opens it.
func restore(t *testing.T, c *Claim) io.ReadCloser {
	t.Helper()
	s, err := c.Restore(t.Context())
	if err != nil || s == nil || s.Stream == nil {
		t.Fatalf("Restore = %+v, %v, want a stream", s, err)
	}
	r, err := s.Stream()
	if err != nil || r == nil {
		t.Fatalf("Stream = %v, %v, want the recorded state", r, err)
	}
	return r
}

// readAll returns the state of a restored snapshot.
func readAll(t *testing.T, s *Snapshot) []byte {
	t.Helper()
	r, err := s.Stream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	state, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// readRest demands that the rest of the stream is the rest of the letters; so many bytes
// were read already.
func readRest(t *testing.T, r io.Reader, letters string, read int) {
	t.Helper()
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(rest, large(letters)[read:]) {
		t.Errorf("read %d bytes, %v, want the rest of the state", len(rest), err)
	}
}

// readSome reads that many bytes.
func readSome(t *testing.T, r io.Reader, n int) {
	t.Helper()
	if _, err := io.ReadFull(r, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// The recorded state is read in few large calls, and nothing but them.
func TestRestoreCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		b.ResetCounts()
		readRest(t, restore(t, c), severalReads, 0)
		b.expectCalls(t, "restoring 44 chunks", calls{storage.OpGetBlob: 11})
	})
}

// While the recorded state is read, nothing replaces it. Touches continue.
func TestSaveWaitsForTheReader(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *Claim, r io.ReadCloser){
		"read to its end": func(t *testing.T, _ *Claim, r io.ReadCloser) { readRest(t, r, severalReads, 1) },
		"closed":          func(t *testing.T, _ *Claim, r io.ReadCloser) { must(t, r.Close()) },
		"closed twice": func(t *testing.T, _ *Claim, r io.ReadCloser) {
			must(t, r.Close())
			must(t, r.Close())
		},
		"given up": func(_ *testing.T, c *Claim, _ io.ReadCloser) { c.CloseReaders() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.claimedLarge(t, severalReads)
				c := b.acquire(t, ours, "worker-2")
				r := restore(t, c)
				readSome(t, r, 1)
				synctest.Wait() // bytes read ahead are here
				b.ResetCounts()
				for what, err := range map[string]error{
					"Save":             c.Save(t.Context(), streamed(large("XY"))),
					"Save of a little": c.Save(t.Context(), Snapshot{State: []byte("x")}),
					"Release":          c.Release(t.Context(), Snapshot{State: []byte("x")}),
					"Commit":           c.Commit(t.Context(), nil),
				} {
					if !errors.Is(err, ErrReading) {
						t.Errorf("%s while the state is read = %v, want ErrReading", what, err)
					}
				}
				b.expectCalls(t, "saves that wait", calls{})
				must(t, c.Touch(t.Context(), Snapshot{Fraction: 0.1}))
				end(t, c, r)
				b.save(t, c, "XY")
			})
		})
	}
}

// A stream that was never opened blocks nothing, and every read after the end
// returns io.EOF.
func TestReaderStaysAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		if _, err := c.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.save(t, c, severalReads+"x") // it was not opened
		r := restore(t, b.acquire(t, ours, "worker-3"))
		readRest(t, r, severalReads+"x", 0)
		for range 2 {
			if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("Read after the end = %d, %v, want EOF", n, err)
			}
		}
	})
}

// A reader whose job was stopped reads no more and blocks no save: its handler may
// never return.
func TestAbandonedReader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		ctx, stop := context.WithCancel(t.Context())
		s, err := c.Restore(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Stream()
		if err != nil {
			t.Fatal(err)
		}
		readSome(t, r, oneRead)
		stop()
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("Read after the stop = %d, %v, want canceled", n, err)
		}
		for range 20 { // a select would take the dead context only sometimes
			if late, err := s.Stream(); err == nil {
				t.Errorf("Stream after the stop = %v, want an error", late)
			}
		}
		if err := c.Release(t.Context(), streamed(large("X"))); err != nil {
			t.Errorf("Release after the stop = %v, want no wait for the reader", err)
		}
	})
}

// Touches change the ETag under a reader. It continues under the new one.
func TestReadDuringTouches(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		r := restore(t, c)
		b.ResetCounts()
		readSome(t, r, oneRead)
		synctest.Wait() // bytes read ahead are here
		must(t, c.Touch(t.Context(), Snapshot{Fraction: 0.1}))
		readSome(t, r, oneRead)
		synctest.Wait()
		must(t, c.Touch(t.Context(), Snapshot{Fraction: 0.2}))
		readRest(t, r, severalReads, 2*oneRead)
		b.expectCalls(t, "11 reads and 2 touches", calls{storage.OpGetBlob: 11, storage.OpSetBlobMetadata: 2})
	})
}

// A touch that was under way when the read was refused explains the refusal.
func TestReadRefusedDuringATouch(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		r := restore(t, c)
		readSome(t, r, oneRead)
		b.OnCall(func(call storage.Call) storage.Fault {
			if call.Operation == storage.OpSetBlobMetadata {
				return storage.Fault{After: time.Second} // it took effect; the reply takes its time
			}
			return storage.Fault{}
		})
		touched := make(chan error)
		go func() { touched <- c.Touch(t.Context(), Snapshot{Fraction: 0.1}) }()
		time.Sleep(time.Millisecond)
		readRest(t, r, severalReads, oneRead)
		must(t, <-touched)
	})
}

// A body that differs from the saved state is never taken for the state: not all of it is
// handed out, and then comes ErrDamaged, every time.
func TestReadDamaged(t *testing.T) {
	flipped := large(severalReads)
	flipped[0]++
	for name, body := range map[string][]byte{
		"a flipped bit at the start": flipped, "other blocks": large(severalReads[:43] + "X"), "swapped blocks": large(severalReads[:42] + "RQ"),
		"cut between reads": large(severalReads[:40]), "cut within a read": large(severalReads[:41]),
		"cut within a chunk": large(severalReads)[:len(severalReads)*chunk-1],
		"all gone":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.claimedLarge(t, severalReads)
				damaged := b.read(t)
				if _, err := b.store.put(t.Context(), &damaged, damaged.ETag, content{data: append([]byte{}, body...)}); err != nil {
					t.Fatal(err)
				}
				c := b.acquire(t, ours, "worker-2")
				begun := time.Now()
				r := restore(t, c)
				got, err := io.ReadAll(r)
				if !errors.Is(err, ErrDamaged) || len(got) >= len(severalReads)*chunk {
					t.Errorf("read %d bytes, %v, want less than the state and ErrDamaged", len(got), err)
				}
				if _, again := r.Read(make([]byte, 1)); !errors.Is(again, ErrDamaged) {
					t.Errorf("a second Read = %v, want ErrDamaged again", again)
				}
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("it took %s to find out, want no long search", took)
				}
				must(t, c.Fail(t.Context(), Snapshot{}, "damaged"))
			})
		})
	}
}

// A record that is removed takes its state along. The job can continue from the
// state that its handler saves next.
func TestReadRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.claimedLarge(t, severalReads)
		c := b.acquire(t, ours, "worker-2")
		r := restore(t, c)
		readSome(t, r, oneRead)
		b.remove(t)
		if _, err := io.ReadAll(r); !errors.Is(err, ErrDamaged) {
			t.Errorf("Read of a removed record = %v, want ErrDamaged", err)
		}
		b.save(t, c, "XYZ")
	})
}

// An error that a retry cannot resolve is returned at once.
func TestReadRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		r := restore(t, b.claimedLarge(t, severalReads))
		b.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 400, Code: "InvalidHeaderValue"}}
		})
		begun := time.Now()
		_, err := r.Read(make([]byte, 1))
		if err == nil || errors.Is(err, ErrDamaged) || conflictIn(err) != nil || time.Since(begun) > time.Minute {
			t.Errorf("Read that is refused = %v after %s, want an error that decides nothing, soon", err, time.Since(begun))
		}
	})
}

// The state that a run began with can be opened again, until the run has saved
// another in its place. That is ErrReplaced, not damage.
func TestRestoredStreamReopens(t *testing.T) {
	for name, next := range map[string]Snapshot{"large": streamed(large("XYZ")), "small": {State: []byte("small")}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.claimedLarge(t, severalReads)
				c := b.acquire(t, ours, "worker-2")
				s, err := c.Restore(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if !bytes.Equal(readAll(t, s), large(severalReads)) {
						t.Error("the state read again is another")
					}
				}
				must(t, c.Save(t.Context(), next))
				if r, err := s.Stream(); !errors.Is(err, ErrReplaced) {
					t.Errorf("Stream after a save = %v, %v, want ErrReplaced", r, err)
				}
			})
		})
	}
}

// A save that arrives late replaces the state under a reader that was opened
// since. That is no damage either.
func TestReadReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimedLarge(t, severalReads)
		r := restore(t, c)
		readSome(t, r, oneRead)
		late := b.read(t)
		late.Write++
		late.StateHash, late.StateSize, late.StateBlocks = blocks.HashOf([]byte("late"), chunk, late.StateKey), 4, 0
		if _, err := b.store.put(t.Context(), &late, late.ETag, content{data: []byte("late")}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, ErrReplaced) || errors.Is(err, ErrDamaged) {
			t.Errorf("Read = %v, want ErrReplaced", err)
		}
	})
}

// OpenState returns states of every size.
func TestOpenState(t *testing.T) {
	for name, s := range map[string]Snapshot{"none": {}, "small": {State: []byte("small")}, "empty": {State: []byte{}},
		"large": streamed(large("ab"))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.store.Fresh(ours, "worker-1")
				must(t, c.Save(t.Context(), s))
				r, err := c.OpenState(t.Context())
				if err != nil || (r == nil) != !s.HasState() {
					t.Fatalf("OpenState = %v, %v, want the state, or nil for none", r, err)
				}
				if r == nil {
					return
				}
				got, err := io.ReadAll(r)
				if err != nil || string(got) != b.body(t) {
					t.Errorf("read %d bytes, %v, want the body", len(got), err)
				}
			})
		})
	}
}
