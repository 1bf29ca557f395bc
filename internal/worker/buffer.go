package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// takeStartable takes the first message from the buffer that may be started at now, nil
// if there is none.
func (c *claimer) takeStartable(now time.Time) *queue.Lease {
	for i, lease := range c.buffer {
		source := c.rotation.of(lease.Queue())
		if now.Before(source.pace.StartDue()) {
			continue
		}
		source.pace.Started(now)
		if i == 0 {
			c.buffer = c.buffer[1:]
		} else {
			c.buffer = slices.Delete(c.buffer, i, i+1)
		}
		return lease
	}
	return nil
}

// releaseOld releases messages that waited for a slot for too long, so that another worker
// can have them. It does not wait for the calls: they may time out while claims are due.
func (c *claimer) releaseOld(ctx context.Context) {
	most := c.maxBuffered()
	var old, kept []*queue.Lease
	for _, lease := range c.buffer {
		if time.Since(lease.AskedAt) >= most {
			old = append(old, lease)
		} else {
			kept = append(kept, lease)
		}
	}
	if len(old) > 0 {
		c.log.DebugContext(ctx, "messages released: no slot got free for them in time", "messages", len(old))
		c.buffer = kept
		c.deliveries.Go(func() { c.releaseAll(old) })
	}
}

// maxBuffered is how long a message may wait for a slot: until it would have to be
// renewed, and no longer than bufferedFor.
func (c *claimer) maxBuffered() time.Duration {
	_, renewAfter := c.runner.ClaimVisibility()
	return min(bufferedFor, renewAfter)
}

// releaseAll releases messages whose jobs were not started. A stop does not cut it
// short.
func (c *claimer) releaseAll(leases []*queue.Lease) { c.runner.ReleaseUnstarted(c.cleanup, leases) }

// releaseRest releases the messages in the buffer after a stop, and the messages that
// the claims in flight bring.
func (c *claimer) releaseRest(ctx context.Context) {
	var releases sync.WaitGroup
	for {
		if rest := c.buffer; len(rest) > 0 {
			c.buffer = nil
			releases.Go(func() { c.releaseAll(rest) })
		}
		if len(c.inFlight.claims) == 0 {
			break
		}
		c.receive(ctx, <-c.inFlight.ended)
	}
	releases.Wait()
}
