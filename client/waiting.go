package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/queue"
)

// Waiting is a job whose message is visible at the front of a queue, so that the next free worker
// takes it.
type Waiting struct {
	// Queue is the name of the queue, and Place the place of the message there, from 1.
	Queue string `json:"queue"`
	Place int    `json:"place"`

	// ID, Kind and Group are the job's. Of another program's message ID is the message's.
	ID    string `json:"id"`
	Kind  string `json:"kind,omitzero"`
	Group string `json:"group,omitzero"`

	// Waited is for how long the message has been on the queue, and Deliveries how often a
	// worker has claimed it.
	Waited     time.Duration `json:"waited_seconds"`
	Deliveries int           `json:"deliveries"`
}

// MarshalJSON returns the job as spotctl prints it.
func (w Waiting) MarshalJSON() ([]byte, error) { return encode(w) }

// frontWait is how long to wait for the front of a queue.
const frontWait = 15 * time.Second

// Waiting returns the jobs at the front of the queues, at most 32 of each, in one call for each
// queue. The service shows neither the messages behind them nor hidden ones, which workers have, or
// which were put with a delay. [Client.Queues] counts all.
func (c *Client) Waiting(ctx context.Context) ([]Waiting, error) {
	if err := c.readShards(ctx); err != nil {
		return nil, c.failure(ctx, err, toRead)
	}
	queues := c.stores.JobQueues()
	fronts := make([][]Waiting, len(queues))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(countsAtOnce)
	for i, q := range queues {
		group.Go(func() error {
			messages, err := front(within, q)
			for n, m := range messages {
				e, decodeErr := queue.Decode(m.Text)
				if decodeErr != nil {
					e = queue.Envelope{ID: m.ID}
				}
				fronts[i] = append(fronts[i], Waiting{Queue: q.Name(), Place: n + 1, ID: e.ID, Kind: e.Kind, Group: e.Group,
					Waited: m.SeenAt.Sub(m.InsertedAt), Deliveries: int(m.Deliveries)})
			}
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(fronts...), c.failure(ctx, err, toRead)
}

// front returns the messages at the front of a queue; none if there is no such queue.
func front(ctx context.Context, q *queue.Queue) ([]queue.Peeked, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, frontWait, fmt.Errorf("it did not answer within %s", frontWait))
	defer cancel()
	messages, err := q.Peek(ctx, queue.MaxClaim)
	if queueerror.HasCode(err, queueerror.QueueNotFound) {
		return nil, nil
	}
	return messages, err
}

// PayloadStart is the start of a job's payload.
type PayloadStart struct {
	Start []byte // at most 512 bytes
	Size  int64  // of the whole payload
}

// startShown is how many bytes of a payload are shown.
const startShown = 512

// PayloadStart returns the start of a job's payload; ok is false if nothing shows it. A payload of more
// than 48 KiB is in a blob until the job has ended, which is removed soon after that. A smaller one is in
// the job's message alone: it is found while that waits at the front of its queue, or of the poison
// queue, and not while the job runs. It costs at most four calls, and one for a job that is done or
// cancelled.
func (c *Client) PayloadStart(ctx context.Context, j Job) (p PayloadStart, ok bool, err error) {
	e, ok, err := c.envelopeOf(ctx, j)
	if !ok || err != nil {
		return p, false, c.failure(ctx, err, toRead)
	}
	p.Start, p.Size, err = c.stores.Payloads.Start(ctx, e, startShown)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) { // the job has ended since
		return PayloadStart{}, false, nil
	}
	return p, err == nil, c.failure(ctx, err, toRead)
}

// envelopeOf returns the part of a job's message that has the payload, as far as it can be found.
func (c *Client) envelopeOf(ctx context.Context, j Job) (e queue.Envelope, ok bool, err error) {
	if j.WorkSHA256 == "" {
		return e, false, nil
	}
	e = queue.Envelope{ID: j.ID, Again: j.Again}
	if e.Inputs, err = named.Encode(j.Inputs); err != nil {
		return e, false, nil //nolint:nilerr // inputs of a newer version
	}
	e.Payload, ok, err = c.stores.Payloads.Find(ctx, j.ID, e.Inputs, j.WorkSHA256, j.Again)
	if ok || err != nil && !bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return e, ok, err
	}
	var queues []*queue.Queue
	switch j.Status { //nolint:exhaustive // the message of a running job is hidden, and an ended one has none
	case StatusOpen:
		if err := c.readShards(ctx); err != nil {
			return e, false, err
		}
		queues = []*queue.Queue{c.stores.Jobs.For(j.ID), c.stores.First, c.stores.OnDemand}
	case StatusPoison:
		queues = []*queue.Queue{c.stores.Poison}
	}
	return inFront(ctx, queues, j)
}

// inFront returns the message of a job if it is at the front of one of the queues.
func inFront(ctx context.Context, queues []*queue.Queue, j Job) (e queue.Envelope, ok bool, err error) {
	for _, q := range queues {
		messages, err := front(ctx, q)
		if err != nil {
			return e, false, err
		}
		for _, m := range messages {
			text := m.Text
			if p, err := queue.DecodePoison(text); err == nil {
				text = p.Body
			}
			found, err := queue.Decode(text)
			if err == nil && found.ID == j.ID && found.Work() == j.WorkSHA256 {
				return found, true, nil
			}
		}
	}
	return e, false, nil
}

// RunAgain starts jobs again that have ended, from scratch, with the payload, inputs and group that they
// had: done and cancelled ones like [PutOptions].Again, without their limits and deadline, and
// dead-lettered ones like [Client.Replay], by whose rules it calls report. It refuses a job that waits
// or runs, and one whose payload is gone: see [Client.PayloadStart].
func (c *Client) RunAgain(ctx context.Context, ids []string, report func(ActionResult) error) error {
	var dead []string
	for _, id := range ids {
		j, err := c.Get(ctx, id)
		if err == nil && j.Status == StatusPoison {
			dead = append(dead, id)
			continue
		}
		r := ActionResult{ID: id, Action: Failed, Err: err}
		if err == nil {
			r.Action, r.Err = c.runAgain(ctx, j)
		}
		if r.Err != nil {
			r.Detail = r.Err.Error()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := report(r); err != nil {
			return err
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return c.Replay(ctx, Selection{IDs: dead}, ReplayOptions{FromScratch: true}, report)
}

func (c *Client) runAgain(ctx context.Context, j Job) (Action, error) {
	if !j.Status.Ended() {
		return Refused, ErrNotFinished
	}
	e, ok, err := c.envelopeOf(ctx, j)
	if err == nil && !ok {
		return Refused, errors.New("its payload went with its message: producer put --again takes it once more")
	}
	spec := Spec{ID: j.ID, Kind: j.Kind, Inputs: j.Inputs, Group: j.Group, Estimate: j.Estimate}
	if err == nil {
		spec.Payload, err = c.stores.Payloads.Load(ctx, e)
	}
	if err != nil {
		return Failed, c.failure(ctx, err, toRead)
	}
	_, err = c.PutMany(ctx, Specs(spec), PutOptions{Again: true, Report: func(r PutResult) error { return r.Err }})
	if err != nil {
		return Failed, err
	}
	return Replayed, nil
}
