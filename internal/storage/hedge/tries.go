package hedge

import (
	"context"
	"sync/atomic"
	"time"
)

// limit is how long the first try of a call may take while time is short. It is far above the
// usual response time of storage.
const limit = time.Second

// Tries limits the tries of one caller's calls. It may be used from several goroutines.
type Tries struct {
	short context.Context //nolint:containedctx // only its end is used
	cut   atomic.Bool     // a try was cut off
}

// NewTries returns the limits of a caller whose time is short once the context short
// has ended.
func NewTries(short context.Context) *Tries { return &Tries{short: short} }

type key struct{}

// In returns a context whose calls t limits.
func (t *Tries) In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, t) }

// triesOf returns the limits of calls under ctx, or nil.
func triesOf(ctx context.Context) *Tries {
	t, _ := ctx.Value(key{}).(*Tries)
	return t
}

// begin returns the context of a try, which is cut off if it is not answered within limit while
// time is short. Call answered when it is answered or has failed.
func (t *Tries) begin(ctx context.Context) (try context.Context, answered func(), cancel context.CancelCauseFunc) {
	try, cancel = context.WithCancelCause(ctx)
	var settled atomic.Bool
	stop := context.AfterFunc(t.short, func() {
		time.AfterFunc(limit, func() {
			if settled.CompareAndSwap(false, true) {
				t.cut.Store(true)
				cancel(errUnanswered)
			}
		})
	})
	return try, func() { settled.Store(true); stop() }, cancel
}
