package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestStaleReceiptIsDropped: a renewal takes effect, and its reply comes after the worker has
// claimed the message again. The receipt of the reply is stale, and the lease keeps that of
// the claim.
func TestStaleReceiptIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		l := b.claim(t, "x")
		b.faultOn(storage.OpUpdateMessage, 1, storage.Fault{After: 3 * time.Second})
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := l.Renew(t.Context(), time.Second); err != nil {
				t.Errorf("Renew with a late reply = %v, want no error", err)
			}
		})
		synctest.Wait()
		time.Sleep(2 * time.Second) // the message is visible again
		l.Adopt(b.claimNext(t))
		calls.Wait()
		if err := l.Renew(t.Context(), 30*time.Second); err != nil {
			t.Errorf("Renew = %v, want no error under the receipt of the later claim", err)
		}
		if err := l.Complete(t.Context()); err != nil || len(b.Messages(jobsName)) != 0 {
			t.Errorf("Complete = %v, %d messages left, want none", err, len(b.Messages(jobsName)))
		}
	})
}
