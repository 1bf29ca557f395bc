package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestCleanups: the cleanups of a handler run when the outcome of its job is carried out, and before the delivery ends. A
// panic in one of them ends neither the job nor the worker.
func TestCleanups(t *testing.T) {
	for name, panics := range map[string]bool{"as usual": false, "a panic": true} {
		t.Run(name, func(t *testing.T) {
			var b *bench
			var status checkpoint.Status
			left := -1
			kinds := handle(func(_ context.Context, j *job.Job) ([]byte, error) {
				j.Cleanup(func() {
					status, left = b.Record("a").Status, b.MessagesLeft()
					if panics {
						panic("oh")
					}
				})
				return []byte("r"), nil
			})
			onBench(t, kinds, func(t *testing.T, bed *bench) {
				b = bed
				b.delay(time.Second, on(b.Names.Records, storage.OpPutBlob))
				b.Put("a", "k", "")
				if b.runOne(); status != checkpoint.Done || left != 0 {
					t.Errorf("record at the cleanup = %q, %d messages; want done, none", status, left)
				}
				found := b.log.Find("cleanup of a handler panicked")
				if panics != (len(found) == 1) || panics && (found[0]["panic"] != "oh" ||
					!strings.Contains(found[0]["stack"].(string), "TestCleanups")) {
					t.Errorf("lines = %v, want one with the panic: %t", found, panics)
				}
				if b.Record("a").Status != checkpoint.Done || b.counter.WithPrefix("failed") != 0 {
					t.Errorf("record = %s, want done", b.Record("a").Status)
				}
			})
		})
	}
}
