package delivery_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestSlowSaves: the next save comes an interval after the end of the one before, so that a long save is followed by work.
// A worker warns once if a save takes longer than a notice leaves for it.
func TestSlowSaves(t *testing.T) {
	for name, row := range map[string]struct {
		takes    time.Duration
		warnings int
	}{"fast": {time.Second, 0}, "slow": {6 * time.Second, 1}} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				for n := byte(0); ; n++ {
					j.Report(job.Progress{State: []byte{n}})
					if err := sleeps(ctx, time.Second); err != nil {
						return nil, err
					}
				}
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				var mu sync.Mutex
				var begun []time.Time
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if !on(b.Names.Records, storage.OpPutBlob)(c) {
						return storage.Fault{}
					}
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, time.Now())
					return storage.Fault{Before: row.takes}
				})
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(time.Hour)
				b.Server.OnCall(nil)
				b.drainNow(10 * time.Second)
				wait()
				lines := b.log.Find("checkpoint saved")
				if len(lines) < 4 || len(lines) > len(begun) {
					t.Fatalf("%d saves with %d calls, want at least 4, each with one call", len(lines), len(begun))
				}
				for i, at := range begun[1:len(lines)] {
					interval := time.Duration(lines[i]["interval"].(float64))
					if after := at.Sub(begun[i]) - row.takes; after < interval-time.Second || after > interval+10*time.Second {
						t.Errorf("save %d began %s after the end of the one before, want %s", i+1, after, interval)
					}
				}
				warnings := b.lines("a checkpoint takes longer to save than an eviction leaves for it: the one before would stand")
				if warnings != row.warnings {
					t.Errorf("%d warnings, want %d", warnings, row.warnings)
				}
			})
		})
	}
}
