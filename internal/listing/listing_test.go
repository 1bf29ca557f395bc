package listing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPage: the limit is that of one page, and an earlier end of the caller's context holds.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) (int, error) {
			select {
			case <-time.After(9 * time.Second):
				return 7, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		for range 3 {
			if n, err := Page(t.Context(), 10*time.Second, slow); n != 7 || err != nil {
				t.Errorf("Page = %d, %v, want the page", n, err)
			}
		}
		if _, err := Page(t.Context(), 8*time.Second, slow); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Page with a limit of 8s = %v, want that the time is over", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := Page(ctx, time.Hour, slow); err == nil || time.Since(began) != time.Second {
			t.Errorf("Page of a caller with 1s = %v after %s, want its end", err, time.Since(began))
		}
	})
}
