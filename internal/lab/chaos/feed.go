package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// backlog is how many jobs there are for each that can run at a time.
const backlog = 6

// largePayload is more than a message holds.
const largePayload = 80 << 10

// feed puts jobs as long as ctx lasts, so that there are always some to take.
func (r *chaos) feed(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	wanted := backlog * r.Workers * r.JobsAtOnce
	for n := 1; ; {
		for r.tally.waiting() < wanted {
			if err := r.put(ctx, n, random); err != nil {
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the run ends
				}
				return err
			}
			n++
		}
		if !sleep(ctx, noVictim) {
			return nil
		}
	}
}

// put puts one job, of a sort that is drawn.
func (r *chaos) put(ctx context.Context, n int, random *rand.Rand) error {
	id := fmt.Sprintf("job-%x-%d", r.began.Unix(), n) // and no other run's on that account
	large, twice := once(random, r.LargeEvery), once(random, r.DuplicateEvery)
	p := payload{
		Seed: fmt.Sprintf("%d %d", r.Seed, n), Steps: int(r.JobTime / stepTime), Each: stepTime,
		Stream: once(random, r.StreamEvery),
	}
	kind := stepsKind
	if once(random, r.ProgramEvery) {
		kind, p.Stream = programKind, false
	}
	copies := 1
	if twice {
		copies = 2
	}
	e, err := r.envelope(ctx, id, kind, p, large)
	if err != nil {
		return err
	}
	r.tally.expect(id, p, kind == programKind, copies)
	for range copies {
		// Once it is expected it must be there, whoever interrupts.
		if err := r.stores.Queue.Put(context.WithoutCancel(ctx), e, 0); err != nil {
			return err
		}
	}
	return nil
}

// envelope is the job's message; a large payload is in a blob.
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

// settleLimit is how long the jobs may take once nothing happens to workers any
// more. A duplicate is looked at again after 30 s, and then less and less often.
const settleLimit = 4 * time.Minute

// settle waits until every job has an outcome and no message is left.
func (r *chaos) settle(ctx context.Context) error {
	r.say("No more incidents. %d jobs are under way.", r.tally.waiting())
	limit, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		if r.tally.waiting() == 0 {
			n, err := r.stores.Queue.Depth(limit)
			if err == nil && n == 0 {
				return nil
			}
		}
		if !sleep(limit, 10*noVictim) {
			return fmt.Errorf("%d jobs have no outcome after %s", r.tally.waiting(), settleLimit)
		}
	}
}
