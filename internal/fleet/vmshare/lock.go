package vmshare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// lockTimeout is how long to wait for a lock. A holder releases it within
	// microseconds unless it is frozen.
	lockTimeout = time.Second

	// lockRetry is the wait between two attempts.
	lockRetry = time.Millisecond
)

// errHeld is the error of a lock that another worker holds.
var errHeld = errors.New("another worker holds it")

// takeWithin takes the lock of a file as soon as it is free, within timeout.
func takeWithin(ctx context.Context, path string, timeout time.Duration) (*lock, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		l, err := take(path)
		if !errors.Is(err, errHeld) {
			return l, err
		}
		if stop := retry.Sleep(ctx, lockRetry); stop != nil {
			return nil, fmt.Errorf("lock %s: %w: %w", path, err, stop)
		}
	}
}
