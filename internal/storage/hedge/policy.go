package hedge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// smallBody is the largest request body of a call whose tries are limited, in bytes.
// The time of a larger one depends on the bandwidth.
const smallBody = 64 << 10

// Policy limits the tries of calls, by a timeout and by the [Tries] in their context. It must
// be the last of a client's per-retry policies.
type Policy struct {
	// TryTimeout is the timeout of each try, including the body of the response; 0 is
	// none. It takes the place of the SDK's, which costs a context and a timer for each
	// try of each call.
	TryTimeout time.Duration

	// CloseIdle closes the client's idle connections. It is called whenever a call of
	// any size timed out: the fault may have killed the idle connections too, and
	// the retry must use a fresh one. Optional.
	CloseIdle func()
}

// Do implements [policy.Policy].
func (p Policy) Do(req *policy.Request) (*http.Response, error) {
	t := triesOf(req.Raw().Context())
	switch {
	case t != nil && req.Raw().ContentLength <= smallBody:
		return p.doLimited(req, t)
	case p.TryTimeout > 0:
		return p.doTimed(req)
	}
	resp, err := req.Next()
	p.ranOut(req.Raw().Context(), err)
	return resp, err
}

// doTimed makes a try that the timeout alone limits.
func (p Policy) doTimed(req *policy.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Raw().Context(), p.TryTimeout)
	setContext(ctx, req)
	resp, err := req.Next()
	if err != nil {
		p.ranOut(ctx, err)
		cancel()
		return resp, err
	}
	endWithBody(resp, cancel)
	return resp, nil
}

// doLimited makes a try that is cut off where it takes too long while time is short.
func (p Policy) doLimited(req *policy.Request, t *Tries) (*http.Response, error) {
	ctx, cut := context.WithCancelCause(req.Raw().Context())
	setContext(ctx, req)
	pending := &try{tries: t, cut: cut, begun: time.Now()}
	t.watch.add(pending, p.TryTimeout)
	resp, err := req.Next()
	if err == nil {
		t.answered(time.Since(pending.begun))
		t.watch.answered(pending)
		endWithBody(resp, func() { // the body is read under ctx
			t.watch.remove(pending)
			cut(nil) // else the caller's context would hold it
		})
		return resp, nil
	}
	t.watch.remove(pending)
	if unanswered, ok := errors.AsType[*unansweredError](context.Cause(ctx)); ok {
		t.cutOff()
		err = unanswered // not the error of ctx, so that the SDK retries
	}
	p.ranOut(ctx, err)
	cut(err)
	return nil, err
}

// setContext sets the context of a request, which is one try's own.
func setContext(ctx context.Context, req *policy.Request) { *req.Raw() = *req.Raw().WithContext(ctx) }

// endWithBody calls end when the body of a response has been read and closed. A body that
// the SDK has read already can seek.
func endWithBody(resp *http.Response, end func()) {
	if _, read := resp.Body.(io.Seeker); read || resp.Body == http.NoBody {
		end()
		return
	}
	resp.Body = &endingBody{resp.Body, end}
}

// endingBody calls end when it is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
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
