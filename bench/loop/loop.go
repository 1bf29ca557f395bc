// Package loop has a loop that makes the calls of a short job and nothing else.
package loop

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Loop claims 32 messages at a time, writes a record of each and deletes it. It renews
// nothing, retries no more than its client does, and knows no owner.
type Loop struct {
	ConnectionString string
	Queue, Records   string // names of the queue and of the container of records
	Slots            int    // jobs at once
}

// message is a claimed message.
type message struct{ id, receipt, text string }

// claimed is how many messages a claim asks for.
const claimed = 32

// Run runs the loop over the Azure SDK until a call fails or ctx ends.
func (l Loop) Run(ctx context.Context) error {
	calls, err := newSDKCaller(l)
	if err != nil {
		return err
	}
	messages := make(chan message, claimed)
	group, ctx := errgroup.WithContext(ctx)
	// Enough claims in flight for all slots: a job takes two calls, a claim one.
	for range 1 + l.Slots/claimed {
		group.Go(func() error { return claimAll(ctx, calls, messages) })
	}
	for range l.Slots {
		group.Go(func() error { return doAll(ctx, calls, messages) })
	}
	return group.Wait()
}

// claimAll claims messages until ctx ends.
func claimAll(ctx context.Context, calls *sdkCaller, messages chan<- message) error {
	for {
		got, err := calls.claim(ctx, claimed)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		for _, m := range got {
			select {
			case messages <- m:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// doAll does one job after the other until ctx ends.
func doAll(ctx context.Context, calls *sdkCaller, messages <-chan message) error {
	for {
		select {
		case m := <-messages:
			if err := calls.record(ctx, m); err != nil {
				return err
			}
			if err := calls.remove(ctx, m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// recordOf is metadata as a worker writes it for a job that is done.
func recordOf(m message) map[string]string {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return map[string]string{
		"v": "1", "status": "done", "kind": "noop", "messageid": m.id, "token": m.id, "write": "1", "generation": "1",
		"payloadhash": "5d2e0a8a3f6c3e1f7c1f2b7cb0d1a4e3c6b5a49788796a5b4c3d2e1f00112233",
		"progress":    "1", "createdat": now, "claimedat": now, "endedat": now, "owner": "bench-0", "overhead": "1",
	}
}
