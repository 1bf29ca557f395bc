package worker

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/renewal"
	"github.com/spotworker/spotworker/internal/retry"
)

// Constants of package delivery on which these tests rely. They are repeated here, so
// that a change of one fails a test.
const (
	quarantineAfter = 3
	maxChargedExits = 10
	steadyFor       = time.Minute
	smallState      = 64 << 10
	deferEvery      = 50 * time.Millisecond
	sampleEvery     = 30 * time.Second
	recheckEvery    = 5 * time.Second
	unknownKindFor  = time.Hour
	moveTimeout     = time.Second
	renewRetry      = 2 * time.Second
	lostShare       = 6 // of the visibility

	defaultVisibility = renewal.DefaultVisibility
	minVisibility     = renewal.MinVisibility
	maxVisibility     = renewal.MaxVisibility
)

// sleepFor waits for d and reports true, or false when ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d) == nil }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
