package checkpoint

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestTransfersKeepUpWithTheSDK compares, in virtual time, the effect of the order of
// calls: restoring and saving a large state against the SDK's own transfers with eight
// calls of the same length in flight.
func TestTransfersKeepUpWithTheSDK(t *testing.T) {
	proof.Only(t, "it transfers large states")
	for _, latency := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		inBubble(t, func(t *testing.T, b *rig) {
			state := make([]byte, 200*oneRead+17)
			fillRandom(state, 1)
			c := b.store.Fresh(ours, "worker-1")
			must(t, c.Save(t.Context(), streamed(state)))
			b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: latency / 2, After: latency / 2} })
			restored, err := timed(t.Context(), func(ctx context.Context) error { return readGenerated(ctx, c) })
			must(t, err)
			downloaded, err := timed(t.Context(), func(ctx context.Context) error {
				_, err := b.store.blob(ours.ID).DownloadBuffer(ctx, make([]byte, len(state)), &blob.DownloadBufferOptions{BlockSize: oneRead,
					Concurrency: 8})
				return err
			})
			must(t, err)
			t.Logf("at %s a call: restored in %s, DownloadBuffer %s", latency, restored, downloaded)
			if float64(downloaded) < 0.9*float64(restored) {
				t.Errorf("at %s a call a restore takes %s, want at most 1/0.9 of DownloadBuffer's %s", latency, restored, downloaded)
			}
		})
	}
}

// TestSavesKeepUpWithTheSDK compares the same for a save with only new content, with
// blocks of the real sizes, in a record without blocks and in a record whose state is
// rewritten. A save takes two round trips more, until it has found out that calls end
// soon.
func TestSavesKeepUpWithTheSDK(t *testing.T) {
	proof.Only(t, "it transfers large states")
	const latency = 10 * time.Millisecond
	inBubble(t, func(t *testing.T, b *rig) {
		state, next := make([]byte, 128<<20), make([]byte, 128<<20)
		fillRandom(state, 1)
		fillRandom(next, 2)
		c, sending := NewStore(b.store.container).Fresh(ours, "worker-1"), gauge{}
		sending.watch(b.link)
		must(t, c.Touch(t.Context(), Snapshot{}))
		b.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: latency / 2, After: latency / 2} })
		first, err := timed(t.Context(), func(ctx context.Context) error { return c.Save(ctx, streamed(state)) })
		must(t, err)
		if _, most := sending.read(); most > Connections || most <= Connections/2 {
			t.Errorf("blocks in flight at once = %d at most, want %d to %d: a connection is kept for each", most, Connections/2+1, Connections)
		}
		b.ResetCounts()
		second, err := timed(t.Context(), func(ctx context.Context) error { return c.Save(ctx, streamed(next)) })
		must(t, err)
		calls := b.Counts()[storage.OpPutBlock]
		uploaded, err := timed(t.Context(), func(ctx context.Context) error {
			_, err := b.store.blob("uploaded").UploadStream(ctx, bytes.NewReader(next), &blockblob.UploadStreamOptions{BlockSize: 4 << 20,
				Concurrency: 8})
			return err
		})
		must(t, err)
		t.Logf("at %s a call: saved in %s, rewritten in %s (%d blocks), UploadStream %s", latency, first, second, calls, uploaded)
		for what, took := range map[string]time.Duration{"a first save": first, "a save of a rewritten state": second} {
			if float64(uploaded) < 0.9*float64(took-2*latency) {
				t.Errorf("at %s a call %s takes %s, want two calls and at most 1/0.9 of UploadStream's %s", latency, what, took, uploaded)
			}
		}
		if calls > 170 {
			t.Errorf("blocks sent for a rewritten state of 128 MiB = %d, want about one for each MiB, and 24 more", calls)
		}
	})
}

func timed(ctx context.Context, do func(context.Context) error) (time.Duration, error) {
	begun := time.Now()
	err := do(ctx)
	return time.Since(begun), err
}

// fillRandom fills p with the random bytes of a seed.
func fillRandom(p []byte, seed uint64) {
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(p) // it never returns an error
}
