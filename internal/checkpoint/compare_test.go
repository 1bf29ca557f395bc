package checkpoint

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// TestTransfersKeepUpWithTheSDK compares, in virtual time, what the order of calls
// allows: restoring and saving a large state against the SDK's own transfers with eight
// calls of the same length in flight.
func TestTransfersKeepUpWithTheSDK(t *testing.T) {
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
				_, err := b.store.blob(ours.ID).DownloadBuffer(ctx, make([]byte, len(state)), &blob.DownloadBufferOptions{BlockSize: oneRead, Concurrency: 8})
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

func timed(ctx context.Context, do func(context.Context) error) (time.Duration, error) {
	begun := time.Now()
	err := do(ctx)
	return time.Since(begun), err
}

// fillRandom fills p with the random bytes of a seed.
func fillRandom(p []byte, seed uint64) {
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(p) // it never returns an error
}
