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
	// none. It takes the place of the SDK's, which does not include the body.
	TryTimeout time.Duration

	// CloseIdle closes the client's idle connections. It is called whenever a call of
	// any size timed out: the fault may have killed the idle connections too, and
	// the retry must use a fresh one. Optional.
	CloseIdle func()
}

// Do implements [policy.Policy].
func (p Policy) Do(req *policy.Request) (*http.Response, error) {
	ctx, end := req.Raw().Context(), func() {}
	if p.TryTimeout > 0 {
		ctx, end = context.WithTimeout(ctx, p.TryTimeout)
	}
	t := triesOf(ctx)
	if t == nil || t.cut.Load() || req.Raw().ContentLength > smallBody {
		return p.try(ctx, req, end)
	}
	ctx, answered, cancel := t.begin(ctx)
	resp, err := p.try(ctx, req, func() { cancel(nil); end() })
	answered()
	if err != nil && errors.Is(context.Cause(ctx), errUnanswered) {
		err = errUnanswered // not the error of ctx, so that the SDK retries
	}
	return resp, err
}

// try makes a try under ctx, and calls end when its response has been read.
func (p Policy) try(ctx context.Context, req *policy.Request, end func()) (*http.Response, error) {
	*req.Raw() = *req.Raw().WithContext(ctx)
	resp, err := req.Next()
	if err != nil {
		if p.CloseIdle != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			p.CloseIdle()
		}
		end()
		return resp, err
	}
	endWithBody(resp, end)
	return resp, nil
}

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

// errUnanswered means that a try was cut off. It counts as a timeout.
var errUnanswered = fmt.Errorf("no answer within %s, while time is short: %w", limit, context.DeadlineExceeded)
