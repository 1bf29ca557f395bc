package storage

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// elapsed is how many seconds passed since began, to the millisecond.
func elapsed(began time.Time) float64 { return time.Since(began).Round(time.Millisecond).Seconds() }

// upload puts a blob of n bytes.
func (a *fixture) upload(ctx context.Context, name string, n int) error {
	_, err := a.blob(name).Upload(ctx, text(strings.Repeat("x", n)), nil)
	return err
}

func TestBandwidthIsSharedEvenlyByTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Up: 1000}})
		began := time.Now()
		var ends sync.Map
		var all sync.WaitGroup
		for _, u := range []struct {
			name string
			size int
		}{{"large", 6000}, {"small", 2000}} {
			all.Go(func() {
				if err := a.upload(t.Context(), u.name, u.size); err != nil {
					t.Errorf("upload %s: %v", u.name, err)
				}
				ends.Store(u.name, elapsed(began))
			})
		}
		all.Wait()
		// Side by side each has half until the small one is done.
		if got, _ := ends.Load("small"); got.(float64) < 3.9 || got.(float64) > 4 {
			t.Errorf("2,000 bytes beside 6,000 took %vs, want 4s: half of 1,000 bytes/s", got)
		}
		if got, _ := ends.Load("large"); got != 8.0 {
			t.Errorf("both together took %vs, want 8s", got)
		}
	})
}

// A link does not save up the unused bandwidth of a slow reader.
func TestReaderThatSleptGetsNoMoreThanTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Bandwidth: Bandwidth{Down: 100}})
		if err := a.upload(t.Context(), "b", 1000); err != nil {
			t.Fatalf("upload: %v", err)
		}
		res, err := a.blob("b").DownloadStream(t.Context(), nil)
		if err != nil {
			t.Fatalf("DownloadStream: %v", err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 100)); err != nil {
			t.Fatalf("read: %v", err)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		if n, err := io.Copy(io.Discard, res.Body); n != 900 || err != nil {
			t.Fatalf("read the rest = %d bytes, %v", n, err)
		}
		if got := elapsed(began); got < 8.9 {
			t.Errorf("900 bytes at 100 bytes/s after a pause took %gs, want 9s", got)
		}
	})
}
