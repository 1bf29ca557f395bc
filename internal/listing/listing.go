// Package listing reads what the storage service lists page by page.
package listing

import (
	"context"
	"time"
)

// Page gets one page of a listing, and waits at most that long for it. A limit on a whole
// listing would make a long one fail: it may have any number of pages.
func Page[T any](ctx context.Context, most time.Duration, next func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return next(ctx)
}
