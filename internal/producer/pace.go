package producer

import (
	"context"
	"time"
)

// How often a [Waiter] looks.
const (
	// shortestWait and longestWait bound the time between two looks.
	shortestWait = 500 * time.Millisecond
	longestWait  = 5 * time.Second

	// readAtMost is how many jobs are looked at one by one, and listPage how
	// many records one call of a listing returns.
	readAtMost = 64
	listPage   = 5000

	// maxOutage is how long all looks may fail before the waiting ends.
	maxOutage = 10 * time.Minute
)

// nextLook returns the time until the next look: short when the last one brought
// news, longer and longer while there is none, and never shorter than the last
// look took, so that long listings do not follow one another at once.
func nextLook(last time.Duration, news bool, took time.Duration) time.Duration {
	next := min(2*last, longestWait)
	if news || last == 0 {
		next = shortestWait
	}
	return max(next, took)
}

// byListing reports whether to list all records instead of reading one for each
// job: many jobs, and fewer calls. listed is how many records the last listing
// had, 0 before the first.
func byListing(jobs, listed int) bool {
	return jobs > readAtMost && jobs > listed/listPage
}

// sleep waits, and returns the cause of ctx's end if that comes first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
