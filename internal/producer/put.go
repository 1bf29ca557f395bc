package producer

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/queue"
)

// put puts one job. One that does not fit into a message leaves its payload in
// a blob first, which a repeat finds there.
func (p *Producer) put(ctx context.Context, j Job) error {
	e := j.envelope
	e.EnqueuedAt = time.Now().UTC()
	err := p.Queue.Put(ctx, e, j.delay)
	if _, ok := errors.AsType[*queue.TooLargeError](err); !ok {
		return err
	}
	e, err = p.Payloads.Offload(ctx, e)
	if err != nil {
		return err
	}
	return p.Queue.Put(ctx, e, j.delay)
}

// minInARow is the least number of failures in a row that ends a run.
const minInARow = 10

// concernsAll reports whether an error will meet every other job too: no right
// to put messages, no such queue, or a storage that has long been silent.
func concernsAll(err error, inARow, parallel int) bool {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		switch response.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			return true
		}
	}
	// One bad moment fails all the calls under way, and is not the end.
	return inARow >= max(minInARow, 2*parallel)
}
