package haste

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// smallBody is the largest request body of a call whose tries are limited, in bytes.
// The time of a larger one depends on the bandwidth.
const smallBody = 64 << 10

// Policy limits the tries of calls, by the [Tries] in their context. It must be the
// last of a client's per-retry policies.
type Policy struct {
	// CloseIdle closes the client's idle connections. It is called whenever a call of
	// any size timed out: the fault may have killed the idle connections too, and
	// the retry must use a fresh one. Optional.
	CloseIdle func()
}

// Do implements [policy.Policy].
func (p Policy) Do(req *policy.Request) (*http.Response, error) {
	ctx := req.Raw().Context()
	t := triesOf(ctx)
	if t == nil || req.Raw().ContentLength > smallBody {
		resp, err := req.Next()
		p.ranOut(ctx, err)
		return resp, err
	}
	ctx, cut := context.WithCancelCause(ctx)
	pending := try{tries: t, cut: cut}
	defer pending.end()
	defer context.AfterFunc(t.short, pending.limit)()

	begun := time.Now()
	resp, err := req.WithContext(ctx).Next()
	if err == nil {
		t.answered(time.Since(begun))
		return resp, nil // the body is read under ctx, so it stays open
	}
	if unanswered, ok := errors.AsType[*unansweredError](context.Cause(ctx)); ok {
		t.cutOff()
		err = unanswered // not the error of ctx, so that the SDK retries
	}
	p.ranOut(ctx, err)
	cut(err)
	return nil, err
}

// try is one try that waits for its answer.
type try struct {
	tries *Tries
	cut   context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // nil until time is short
	ended bool
}

// limit cuts the try off if it is not answered within its limit, which starts with the
// try, or later when time becomes short.
func (t *try) limit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	limit := t.tries.limit()
	t.timer = time.AfterFunc(limit, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.ended {
			t.cut(&unansweredError{limit})
		}
	})
}

// end ends the limit: the try was answered, or has failed.
func (t *try) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// ranOut closes idle connections if a call failed because it timed out.
func (p Policy) ranOut(ctx context.Context, err error) {
	if err != nil && p.CloseIdle != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		p.CloseIdle()
	}
}

// unansweredError means that a try was cut off.
type unansweredError struct{ after time.Duration }

func (e *unansweredError) Error() string {
	return fmt.Sprintf("no answer within %s, while time is short", e.after)
}

// Unwrap makes it count as a timeout.
func (e *unansweredError) Unwrap() error { return context.DeadlineExceeded }
