package runtimedir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// lockPatience is how long a lock is waited for. Whoever holds one does so for
	// microseconds, unless it is frozen.
	lockPatience = time.Second

	// lockRetry is the wait between two tries.
	lockRetry = time.Millisecond
)

// errHeld says that another holds the lock.
var errHeld = errors.New("another worker holds it")

// takeWithin takes the lock of a file as soon as it is free, and gives up after
// patience.
func takeWithin(ctx context.Context, path string, patience time.Duration) (*lock, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		l, err := take(path)
		if !errors.Is(err, errHeld) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w: %w", path, err, context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}
