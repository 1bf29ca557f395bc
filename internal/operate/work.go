package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

// maxWrapped bounds how many poison messages may be inside one another, which
// comes of putting one on the queue of jobs.
const maxWrapped = 4

// work is what a poison message stands for.
type work struct {
	// poison is the message itself, or the innermost where one holds another,
	// and wraps are those around it.
	poison queue.Poison
	wraps  []queue.Poison

	text     string // of the original message
	textGone bool   // it was in a blob that is missing
	id       string // of the job; empty where nobody knows it

	// isJob says that envelope is the job; otherwise unreadable says why the
	// original message is none.
	isJob      bool
	envelope   queue.Envelope
	unreadable error
}

// delivery is what the rules of the job's record need.
func (w *work) delivery() checkpoint.Delivery {
	return checkpoint.Delivery{ID: w.envelope.ID, Kind: w.envelope.Kind, PayloadHash: w.envelope.Payload.Hash()}
}

// workOf reads the message that an item stands for.
func (p *PoisonQueue) workOf(ctx context.Context, it Item) (work, error) {
	w := work{poison: it.Poison}
	for w.open(ctx, p.Payloads) == nil {
		if !w.unwrap() {
			w.decode(p.DefaultKind)
			return w, nil
		}
	}
	if w.textGone {
		return w, nil
	}
	return w, w.unreadable
}

// open fetches the text of the original message. An error that is not
// [queue.ErrPayload] is of the storage and may pass.
func (w *work) open(ctx context.Context, payloads *queue.Payloads) error {
	if jobid.Validate(w.poison.ID) == nil {
		w.id = w.poison.ID
	}
	w.text, w.unreadable = w.poison.Original(ctx, payloads)
	w.textGone = errors.Is(w.unreadable, queue.ErrPayload)
	return w.unreadable
}

// unwrap goes on to the poison message that the original text is, if it is one.
func (w *work) unwrap() bool {
	inner, err := queue.DecodePoison(w.text)
	if err != nil || len(w.wraps) == maxWrapped {
		return false
	}
	w.wraps = append(w.wraps, w.poison)
	w.poison = inner
	return true
}

// decode reads the original message as a worker would.
func (w *work) decode(defaultKind string) {
	e, err := queue.Decode(w.text)
	if errors.Is(err, queue.ErrForeign) {
		id, kind := w.poison.ID, w.poison.Kind
		if id == "" && kind == "" {
			id, kind = w.poison.MessageID, defaultKind // as a worker with that kind would have had it
		}
		e, err = foreign(w, id, kind)
	}
	w.envelope, w.unreadable, w.isJob = e, err, err == nil
	if w.isJob {
		w.id = e.ID
	}
}

// errNoKind says that a text is nobody's job.
var errNoKind = errors.New("it is somebody else's message, and no kind of job: --default-kind says which kind to make of it")

func foreign(w *work, id, kind string) (queue.Envelope, error) {
	if kind == "" {
		return queue.Envelope{}, errNoKind
	}
	if err := errors.Join(jobid.Validate(id), jobid.ValidateKind(kind)); err != nil {
		return queue.Envelope{}, fmt.Errorf("it cannot be a job: %w", err)
	}
	return queue.Foreign(w.text, id, kind, w.poison.PoisonedAt), nil
}

// recordOf reads the record of a job of which only the id and the kind are known;
// the zero value stands for none.
func (p *PoisonQueue) recordOf(ctx context.Context, w *work) (checkpoint.Record, error) {
	if w.id == "" {
		return checkpoint.Record{}, nil
	}
	r, err := p.Records.Read(ctx, w.id)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return checkpoint.Record{}, nil
	case err != nil:
		return r, err
	case r.Version != checkpoint.Version:
		return r, checkpoint.ErrUnknownFormat
	case w.poison.Kind != "" && r.Kind != "" && r.Kind != w.poison.Kind:
		return r, fmt.Errorf("%w: its kind is %q", checkpoint.ErrOtherWork, r.Kind)
	}
	return r, nil
}

// drop takes a poison message away, and then what was kept beside it.
func (p *PoisonQueue) drop(ctx context.Context, lease *queue.Lease, w *work) error {
	if err := lease.Complete(ctx); err != nil {
		return err
	}
	for _, message := range append(w.wraps, w.poison) {
		if err := message.DiscardOriginal(ctx, p.Payloads); err != nil {
			return err
		}
	}
	return nil
}
