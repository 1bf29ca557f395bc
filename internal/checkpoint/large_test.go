package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// chunk is the length of a block in these tests, in bytes: moving MiBs about
// takes long with the race detector.
const chunk = 1 << 10

// large returns a state of one chunk for each letter, filled with it.
func large(letters string) []byte {
	state := make([]byte, 0, len(letters)*chunk)
	for _, letter := range []byte(letters) {
		state = append(state, bytes.Repeat([]byte{letter}, chunk)...)
	}
	return state
}

// streamed is a snapshot that holds the state as a stream.
func streamed(state []byte) Snapshot {
	return Snapshot{Stream: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(state)), nil }}
}

// claimedLarge returns the claim of a delivery whose record exists, with a large
// state saved, and forgets the calls that took.
func (b *rig) claimedLarge(t *testing.T, letters string) *Claim {
	t.Helper()
	c := b.store.Fresh(ours, "worker-1")
	b.save(t, c, letters)
	b.ResetCounts()
	return c
}

// save saves a large state, which must succeed and read back.
func (b *rig) save(t *testing.T, c *Claim, letters string) {
	t.Helper()
	if err := c.Save(t.Context(), streamed(large(letters))); err != nil {
		t.Fatalf("Save of %s = %v, want no error", letters, err)
	}
	b.holds(t, letters)
}

// holds demands that the record's body is that large state.
func (b *rig) holds(t *testing.T, letters string) {
	t.Helper()
	if got := summary(b.body(t)); got != letters {
		t.Fatalf("the record's body = %s, want %s", got, letters)
	}
	if r := b.read(t); r.StateBlocks != len(letters) || r.StateSize != int64(len(letters))*chunk {
		t.Fatalf("record = %d blocks, %d bytes, want %d chunks", r.StateBlocks, r.StateSize, len(letters))
	}
}

// summary names a large state by its letters again.
func summary(body string) string {
	var letters strings.Builder
	for ; len(body) >= chunk; body = body[chunk:] {
		if body[:chunk] != strings.Repeat(body[:1], chunk) {
			return fmt.Sprintf("%s and a chunk of different bytes", letters.String())
		}
		letters.WriteByte(body[0])
	}
	if body != "" {
		fmt.Fprintf(&letters, " and %.20q", body)
	}
	return letters.String()
}

// calls is how often each operation was called since the last reset.
type calls map[string]int64

func (b *rig) expectCalls(t *testing.T, what string, want calls) {
	t.Helper()
	if got := b.Counts(); !maps.Equal(got, want) {
		t.Errorf("calls of %s = %v, want %v", what, got, want)
	}
	b.ResetCounts()
}

// A stream of any length is restored unchanged. Only one of a chunk or more is
// kept in blocks.
func TestStreamRoundTrip(t *testing.T) {
	inOne := calls{storage.OpPutBlob: 1}
	inBlocks := func(n int64) calls {
		return calls{storage.OpPutBlob: 1, storage.OpPutBlock: n, storage.OpPutBlockList: 1}
	}
	for _, row := range []struct {
		size   int
		blocks int
		calls  calls
	}{
		{0, 0, inOne}, {1, 0, inOne}, {blocks.Unit - 1, 0, inOne},
		{blocks.Unit, 1, inBlocks(1)}, {blocks.Unit + 1, 2, inBlocks(2)}, {9*blocks.Unit + 17, 10, inBlocks(10)},
	} {
		t.Run(fmt.Sprint(row.size), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.store.WithChunks(blocks.Unit)
				state := make([]byte, row.size)
				for i := range state {
					state[i] = byte(i>>20 + i)
				}
				sent := streamed(state)
				sent.Version, sent.Fraction, sent.Text = 7, 0.5, "half"
				if err := b.store.Fresh(ours, "worker-1").Release(t.Context(), sent); err != nil {
					t.Fatal(err)
				}
				b.expectCalls(t, "the first save", row.calls)
				if r := b.read(t); r.StateSize != int64(row.size) || r.StateBlocks != row.blocks || r.StateVersion != 7 {
					t.Errorf("record = %d bytes in %d blocks, version %d, want %d in %d, 7", r.StateSize, r.StateBlocks, r.StateVersion, row.size,
						row.blocks)
				}
				got, err := b.acquire(t, ours, "worker-2").Restore(t.Context())
				if err != nil || got.Version != 7 || got.Fraction != 0.5 || got.Text != "half" {
					t.Fatalf("Restore = %+v, %v, want what was released", got, err)
				}
				if got.Stream == nil != (row.blocks == 0) {
					t.Fatalf("restored as a stream: %t, with %d blocks", got.Stream != nil, row.blocks)
				}
				back := got.State
				if got.Stream != nil {
					back = readAll(t, got)
				}
				if !bytes.Equal(back, state) {
					t.Errorf("restored %d bytes that are not the %d that were saved", len(back), len(state))
				}
			})
		})
	}
}

// A claim tracks the blocks of its record correctly across every kind of write: the
// next save sends exactly the missing ones.
func TestBlocksAreKnown(t *testing.T) {
	one := calls{storage.OpPutBlock: 1, storage.OpPutBlockList: 1}
	all := calls{storage.OpPutBlock: 4, storage.OpPutBlockList: 1}
	small := Snapshot{State: []byte("small")}
	for _, row := range []struct {
		after string
		do    func(t *testing.T, b *rig, c *Claim) *Claim
		want  calls
	}{
		{"nothing", func(_ *testing.T, _ *rig, c *Claim) *Claim { return c }, one},
		{"a touch", func(t *testing.T, _ *rig, c *Claim) *Claim {
			must(t, c.Touch(t.Context(), Snapshot{Fraction: 0.5}))
			return c
		}, one},
		{"a small state", func(t *testing.T, _ *rig, c *Claim) *Claim { must(t, c.Save(t.Context(), small)); return c }, all},
		{"a small stream", func(t *testing.T, _ *rig, c *Claim) *Claim {
			must(t, c.Save(t.Context(), streamed([]byte("small"))))
			return c
		}, all},
		{"a small and the large state", func(t *testing.T, b *rig, c *Claim) *Claim {
			must(t, c.Save(t.Context(), small))
			b.save(t, c, "abcd")
			return c
		}, one},
		{"a take", func(t *testing.T, b *rig, _ *Claim) *Claim { return b.acquire(t, ours, "worker-2") },
			calls{storage.OpGetBlockList: 1, storage.OpPutBlock: 1, storage.OpPutBlockList: 1}},
		{"a take and a save", func(t *testing.T, b *rig, _ *Claim) *Claim {
			c := b.acquire(t, ours, "worker-2")
			b.save(t, c, "abYd")
			return c
		}, one},
		{"a take of a small state", func(t *testing.T, b *rig, c *Claim) *Claim {
			must(t, c.Release(t.Context(), small))
			return b.acquire(t, ours, "worker-2")
		}, all},
		{"a release and a take", func(t *testing.T, b *rig, c *Claim) *Claim {
			must(t, c.Release(t.Context(), Snapshot{}))
			return b.acquire(t, ours, "worker-2")
		}, calls{storage.OpGetBlockList: 1, storage.OpPutBlock: 1, storage.OpPutBlockList: 1}},
		{"a save whose replies were lost", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.failCommits(tries, storage.Fault{DropReply: true})
			must(t, c.Save(t.Context(), streamed(large("abYd"))))
			return c
		}, one},
		{"a save whose requests were lost", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.failCommits(tries, storage.Fault{DropRequest: true})
			must(t, c.Save(t.Context(), streamed(large("abYd"))))
			return c
		}, one},
		{"a small state whose replies were lost", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.cause(trouble{writes: tries, fault: storage.Fault{DropReply: true}})
			must(t, c.Save(t.Context(), small))
			return c
		}, all},
		{"a save that arrived late", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.link.lateCommit()
			must(t, c.Save(t.Context(), streamed(large("WXYZ"))))
			b.link.step = nil
			b.holds(t, "WXYZ")
			return c
		}, calls{storage.OpGetBlockList: 1, storage.OpPutBlock: 3, storage.OpPutBlockList: 1}},
		{"a removal and a touch", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.remove(t)
			must(t, c.Touch(t.Context(), Snapshot{}))
			return c
		}, all},
		{"a removal and a save", func(t *testing.T, b *rig, c *Claim) *Claim {
			b.remove(t)
			b.save(t, c, "abYd")
			return c
		}, one},
	} {
		t.Run(row.after, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := row.do(t, b, b.claimedLarge(t, "abcd"))
				b.OnCall(nil)
				b.ResetCounts()
				if err := c.Save(t.Context(), streamed(large("abXd"))); err != nil {
					t.Fatal(err)
				}
				b.expectCalls(t, "the save after "+row.after, row.want)
				b.holds(t, "abXd")
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failCommits lets so many tries of Put Block List go wrong.
func (b *rig) failCommits(n int, fault storage.Fault) {
	b.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != storage.OpPutBlockList || n == 0 {
			return storage.Fault{}
		}
		n--
		return fault
	})
}

// lateCommit makes the next Put Block List land late: after the read that
// settles it, just before the next write of the record.
func (l *link) lateCommit() {
	var waiting func() (*http.Response, error)
	commits := 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step = func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if r.Method != http.MethodPut || r.URL.Query().Get("comp") != "blocklist" {
			return send()
		}
		commits++
		if commits == 1 {
			waiting = send
		}
		if commits <= tries {
			return nil, syscall.ECONNRESET
		}
		if waiting != nil {
			_, _ = waiting()
			waiting = nil
		}
		return send()
	}
}

// The next save continues an incomplete one.
func TestFailedSaveIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimedLarge(t, "abcd")
		before := b.read(t)
		b.refuseBlock(t, "Z")
		err := c.Save(t.Context(), streamed(large("WXYZ")))
		if err == nil || conflictIn(err) != nil || !strings.Contains(err.Error(), "AuthorizationFailure") ||
			!strings.Contains(err.Error(), ours.ID) {
			t.Errorf("Save with a block refused = %v, want the job and the service's reason", err)
		}
		if after := b.read(t); after.ETag != before.ETag {
			t.Errorf("record after a failed save = %+v, want it as before", after)
		}
		b.holds(t, "abcd")
		b.OnCall(nil)
		b.ResetCounts()
		must(t, c.Touch(t.Context(), Snapshot{}))
		must(t, c.Save(t.Context(), streamed(large("WXYZ"))))
		b.expectCalls(t, "a touch and the next save", calls{storage.OpSetBlobMetadata: 1, storage.OpPutBlock: 1, storage.OpPutBlockList: 1})
		b.holds(t, "WXYZ")
	})
}

// namer returns the namer of the blocks that the record has.
func (b *rig) namer(t *testing.T) blocks.Namer {
	t.Helper()
	return blocks.NewNamer(b.read(t).StateKey)
}

// refuseBlock refuses the block of one letter, when all others have arrived.
func (b *rig) refuseBlock(t *testing.T, letter string) {
	id := b.namer(t).Chunk(large(letter))
	b.OnCall(func(c storage.Call) storage.Fault {
		if c.BlockID == id {
			return storage.Fault{Before: time.Second, Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}
		}
		return storage.Fault{}
	})
}

// The service discards staged blocks after a week. A save that relied on them
// detects this, and sends them again.
func TestForgottenBlocksAreSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c := b.claimedLarge(t, "abcd")
		b.refuseBlock(t, "Z")
		if err := c.Save(t.Context(), streamed(large("abYZ"))); err == nil {
			t.Fatal("Save with a block refused = <nil>, want an error")
		}
		b.OnCall(nil)
		time.Sleep(8 * 24 * time.Hour)
		b.ResetCounts()
		must(t, c.Save(t.Context(), streamed(large("abYZ"))))
		b.expectCalls(t, "the save a week later", calls{
			storage.OpPutBlock: 1 + 2, storage.OpPutBlockList: 1 + 1, storage.OpGetBlockList: 1,
		})
		b.holds(t, "abYZ")
	})
}

// Blocks staged without a record make a Put Blob that creates it fail. The claim recovers
// with any next write.
func TestStagedOnARemovedRecord(t *testing.T) {
	writes := ownersWrites()
	writes["Save of a stream"] = func(ctx context.Context, c *Claim) error { return c.Save(ctx, streamed(large("WXYZ"))) }
	writes["Save of part of the state"] = func(ctx context.Context, c *Claim) error { return c.Save(ctx, streamed(large("abcZ"))) }
	for what, write := range writes {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.claimedLarge(t, "abcd")
				b.refuseBlock(t, "X")
				namer := b.namer(t)
				b.remove(t)
				if err := c.Save(t.Context(), streamed(large("abcX"))); err == nil {
					t.Fatal("Save with a block refused = <nil>, want an error")
				}
				if _, err := b.store.blob(ours.ID).StageBlock(t.Context(), namer.Chunk(large("W")), readSeekCloser("W"),
					nil); err != nil {
					t.Fatal(err)
				}
				b.OnCall(nil)
				begun := time.Now()
				if err := write(t.Context(), c); err != nil {
					t.Fatalf("%s = %v, want the record created again", what, err)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("%s took %s, want no long search", what, took)
				}
				if r := b.read(t); r.Token != c.Token() {
					t.Errorf("record = %+v, want this claim's", r)
				}
			})
		})
	}
}

func readSeekCloser(text string) io.ReadSeekCloser {
	return struct {
		io.ReadSeeker
		io.Closer
	}{strings.NewReader(text), io.NopCloser(nil)}
}

// The same ending again, by a caller that did not learn of it, reads the stream
// no second time.
func TestLargeReleaseTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		c, opened := b.claimedLarge(t, "abcd"), 0
		s := Snapshot{Stream: func() (io.ReadCloser, error) {
			opened++
			return io.NopCloser(bytes.NewReader(large("abXd"))), nil
		}}
		b.failCommits(tries, storage.Fault{DropReply: true})
		must(t, c.Release(t.Context(), s))
		must(t, c.Release(t.Context(), s))
		if r := b.read(t); opened != 1 || r.Interruptions != 1 || r.Status != Open {
			t.Errorf("stream opened %d times, record = %s, %d interruptions, want once, open, 1", opened, r.Status, r.Interruptions)
		}
		b.holds(t, "abXd")
	})
}

// overlong is a stream that says it has read more than there was room for.
type overlong struct{}

func (overlong) Read(p []byte) (int, error) { return len(p) + 1, nil }

// negative is a stream that says it has read less than nothing.
type negative struct{}

func (negative) Read([]byte) (int, error) { return -1, nil }

// A state that cannot be read completely is not recorded: a stream that broke off must
// not count as a complete one.
func TestUnreadableStream(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, row := range map[string]struct {
		stream func() (io.ReadCloser, error)
		want   error
	}{
		"cannot be opened":                    {func() (io.ReadCloser, error) { return nil, broken }, broken},
		"panics":                              {func() (io.ReadCloser, error) { panic("no file") }, ErrUnreadable},
		"panics early":                        {broke("", errPanic), ErrUnreadable},
		"panics later":                        {broke("WX", errPanic), ErrUnreadable},
		"is none":                             {func() (io.ReadCloser, error) { return nil, nil }, ErrUnreadable},
		"breaks at once":                      {broke("", broken), broken},
		"breaks early":                        {broke("abc", broken), broken},
		"breaks later":                        {broke("WXYZabc", broken), broken},
		"is cut off early":                    {broke("", io.ErrUnexpectedEOF), io.ErrUnexpectedEOF},
		"is cut off later":                    {broke("WX", io.ErrUnexpectedEOF), io.ErrUnexpectedEOF},
		"says that it read too much":          {func() (io.ReadCloser, error) { return io.NopCloser(overlong{}), nil }, ErrUnreadable},
		"says that it read less than nothing": {func() (io.ReadCloser, error) { return io.NopCloser(negative{}), nil }, ErrUnreadable},
		"is cut off, said with a wrapped end": {broke("", fmt.Errorf("read: %w", io.EOF)), ErrUnreadable},
		"is cut off later, said with a wrapped end": {broke("WX", fmt.Errorf("read: %w", io.EOF)), ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				c := b.claimedLarge(t, "abcd")
				before := b.read(t)
				err := c.Save(t.Context(), Snapshot{Stream: row.stream})
				if !errors.Is(err, row.want) || !errors.Is(err, ErrUnreadable) {
					t.Errorf("Save of a stream that %s = %v, want ErrUnreadable for %v", name, err, row.want)
				}
				if b.read(t).ETag != before.ETag {
					t.Error("the save changed the record")
				}
				b.holds(t, "abcd")
			})
		})
	}
}

// broke returns a stream that gives so many chunks and half of one, and then err.
func broke(letters string, err error) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		data := append(large(letters), make([]byte, chunk/2)...)
		end := iotest.ErrReader(err)
		if errors.Is(err, errPanic) {
			end = nil // reading it panics
		}
		return io.NopCloser(io.MultiReader(bytes.NewReader(data), end)), nil
	}
}

// errPanic stands for a panic.
var errPanic = errors.New("panic")

// A state over the limit is refused before more than the limit was sent, and
// leaves the record and the claim as they were.
func TestTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		if b.store.maxStream != 32<<30 {
			t.Errorf("limit = %d bytes, want 32 GiB", b.store.maxStream)
		}
		b.store.maxStream = 3 * chunk
		c := b.claimedLarge(t, "abc")
		for _, letters := range []string{"WXYZ", "abcdefghijklmnopqrstuvw"} {
			if err := c.Save(t.Context(), streamed(large(letters))); !errors.Is(err, ErrTooLarge) {
				t.Errorf("Save of %d chunks = %v, want ErrTooLarge", len(letters), err)
			}
			if sent := b.Counts()[storage.OpPutBlock]; sent > 3 {
				t.Errorf("blocks sent of a state that is too large = %d, want 3 at most", sent)
			}
			b.ResetCounts()
		}
		if err := c.Save(t.Context(), streamed(append(large("abc"), 'd'))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Save of 3 chunks and a byte = %v, want ErrTooLarge", err)
		}
		b.holds(t, "abc")
		b.save(t, c, "XYZ")
	})
}

// asReported is a state as a handler reports it: a short one in one piece.
func asReported(state string) Snapshot {
	if len(state) < chunk {
		return Snapshot{State: []byte(state), Version: len(state)}
	}
	s := streamed([]byte(state))
	s.Version = len(state)
	return s
}
