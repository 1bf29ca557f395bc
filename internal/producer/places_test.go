package producer

import (
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestPlacesAdapt: far from the storage as many jobs are put at once as it takes, up to the queue's
// limit; near it no more than at the start; a given number stays. The waits after refusals are random.
func TestPlacesAdapt(t *testing.T) {
	for name, row := range map[string]struct {
		latency     time.Duration
		parallel    int
		least, most float64 // jobs a second
	}{
		"near":                       {5 * time.Millisecond, 0, 1300, 2000},
		"far":                        {20 * time.Millisecond, 0, 1500, 2000},
		"farther than there is room": {100 * time.Millisecond, 0, 900, 1280},
		"far with a given number":    {20 * time.Millisecond, 16, 700, 800},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setupWith(t, storage.Options{Latency: row.latency})
				if err := b.create(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.server.SetLimits(&storage.Limits{})
				b.Parallel, b.Refused = row.parallel, b.server.Throttled
				const jobs = 6000
				begun := time.Now()
				s, err := b.Run(t.Context(), iter.Seq2[Spec, error](func(yield func(Spec, error) bool) {
					for i := range jobs {
						if !yield(Spec{Where: fmt.Sprint(i), Kind: "k"}, nil) {
							return
						}
					}
				}))
				if err != nil || s.Put != jobs {
					t.Fatalf("Run = %+v, %v, want %d jobs put", s, err, jobs)
				}
				rate := jobs / time.Since(begun).Seconds()
				t.Logf("%.0f jobs/s, %d calls refused", rate, b.server.Throttled())
				if rate < row.least || rate > 1.05*row.most {
					t.Errorf("%.0f jobs a second, want %.0f to %.0f", rate, row.least, row.most)
				}
			})
		})
	}
}
