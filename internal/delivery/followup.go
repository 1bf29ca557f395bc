package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// putFollowUps are the follow-up jobs that this delivery has put, for the next writes of the
// record.
type putFollowUps struct {
	mu    sync.Mutex
	names checkpoint.FollowUps
}

func (p *putFollowUps) add(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = p.names.With(checkpoint.FollowUps(id))
}

// addTo returns the recorded names together with the names of this delivery.
func (p *putFollowUps) addTo(recorded checkpoint.FollowUps) checkpoint.FollowUps {
	p.mu.Lock()
	defer p.mu.Unlock()
	return recorded.With(p.names)
}

// putFollowUp puts a follow-up job of this one on the queue of jobs. Its id may have
// been put before, by an earlier run of the handler.
func (l *loader) putFollowUp(ctx context.Context, id string, f job.FollowUp) error {
	if err := l.cancels.confirmOwnership(ctx); err != nil {
		return job.Unavailable(err)
	}
	e := queue.Envelope{
		ID: id, Kind: f.Kind, EnqueuedAt: time.Now().UTC(), Deadline: f.Deadline, Estimate: f.Estimate,
		Trace: l.span.Parent(l.msg.envelope.Trace), ChosenID: true,
	}
	var err error
	switch data := f.Payload.(type) {
	case json.RawMessage:
		e.Payload, err = queue.JSONPayload(data)
	case []byte:
		e.Payload = queue.BytesPayload(data)
	}
	if err == nil {
		e.Inputs, err = named.Encode(f.Inputs)
	}
	if err == nil {
		err = validateFollowUp(e, f.Delay)
	}
	if err != nil {
		return job.Permanent(err)
	}
	to, err := l.msg.runner.Place(e.ID)
	if err != nil {
		return job.Unavailable(err)
	}
	if err := to.PutAny(ctx, e, f.Delay, l.msg.runner.accounts[to.Account()].Payloads); err != nil {
		return job.Unavailable(err)
	}
	l.rec.followUps.add(id)
	l.msg.log.InfoContext(ctx, "follow-up job put", "follow_up_id", id, "follow_up_kind", f.Kind, "name", f.Name)
	return nil
}

// validateFollowUp returns why a follow-up job can never be put.
func validateFollowUp(e queue.Envelope, delay time.Duration) error {
	if delay < 0 || delay > queue.MaxDelay {
		return fmt.Errorf("delay %s: it must be between 0 and %s", delay, queue.MaxDelay)
	}
	if data, _ := e.Payload.Inline(); len(data) > queue.MaxPayload {
		return fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data),
			queue.MaxPayload)
	}
	return e.Validate()
}
