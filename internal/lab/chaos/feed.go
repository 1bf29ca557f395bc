package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
)

// backlog is how many jobs there are for each slot.
const backlog = 6

// largePayload is more than a message holds.
const largePayload = 80 << 10

// feed puts jobs until ctx ends, so that there is always a backlog.
func (r *chaos) feed(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.config.Seed, 1))
	wanted := backlog * r.config.Workers * r.config.JobsAtOnce
	for n := 1; ; {
		for r.recorder.Waiting() < wanted {
			if err := r.put(ctx, n, random); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the run ends
				}
				return err
			}
			n++
		}
		if retry.Sleep(ctx, pollInterval) != nil {
			return nil //nolint:nilerr // the run ends
		}
	}
}

// put puts one job of a random kind.
func (r *chaos) put(ctx context.Context, n int, random *rand.Rand) error {
	id := fmt.Sprintf("job-%x-%d", r.began.Unix(), n) // unique for all runs on the account
	large, twice := once(random, r.config.LargeEvery), once(random, r.config.DuplicateEvery)
	p := payload{
		Seed: fmt.Sprintf("%d %d", r.config.Seed, n), Steps: int(r.config.JobTime / stepTime), Each: stepTime,
		Stream: once(random, r.config.StreamEvery),
	}
	kind, copies := stepsKind, 1
	if once(random, r.config.ProgramEvery) {
		kind, p.Stream = programKind, false
		r.count(&r.counts.programs)
	}
	if twice {
		copies = 2
		r.count(&r.counts.duplicates)
	}
	e, err := r.envelope(ctx, id, kind, p, large)
	if err != nil {
		return err
	}
	want := p.result()
	r.recorder.Expect(id, oracle.Job{Put: time.Now(), Healthy: true, Restricted: kind == programKind}, func(result []byte) bool {
		return bytes.Equal(result, want)
	})
	for range copies {
		// An expected job must be on the queue, even if the run is interrupted.
		if err := r.stores.Queue.Put(context.WithoutCancel(ctx), e, 0); err != nil {
			return err
		}
	}
	return nil
}

// envelope returns the job's message, with a large payload in a blob.
func (r *chaos) envelope(ctx context.Context, id, kind string, p payload, large bool) (queue.Envelope, error) {
	fields := struct {
		payload
		Filler string `json:"filler,omitempty"`
	}{payload: p}
	if large {
		fields.Filler = strings.Repeat("x", largePayload)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return queue.Envelope{}, err
	}
	content, err := queue.JSONPayload(raw)
	if err != nil {
		return queue.Envelope{}, err
	}
	e := queue.Envelope{ID: id, Kind: kind, Payload: content, EnqueuedAt: time.Now().UTC()}
	if large {
		return r.stores.Payloads.Offload(ctx, e)
	}
	return e, nil
}

// settleLimit is how long the jobs may take after the last incident. A duplicate is
// deferred by 30 s, and then by more.
const settleLimit = 4 * time.Minute

// settle waits until every job has an outcome and no message is left.
func (r *chaos) settle(ctx context.Context) error {
	r.narrator.Say("No more incidents. %d jobs have no outcome yet.", r.recorder.Waiting())
	limit, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		if r.recorder.Waiting() == 0 {
			n, err := r.stores.Queue.Depth(limit)
			if err == nil && n == 0 {
				return nil
			}
		}
		if retry.Sleep(limit, 10*pollInterval) != nil {
			return fmt.Errorf("%d jobs have no outcome after %s", r.recorder.Waiting(), settleLimit)
		}
	}
}
