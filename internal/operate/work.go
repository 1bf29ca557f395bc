package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

// maxWrapped limits how many poison messages may be nested, which happens when a
// poison message is put on the job queue.
const maxWrapped = 4

// work is the job behind a poison message.
type work struct {
	// poison is the message itself, or the innermost of nested messages, and wraps
	// are those around it.
	poison queue.Poison
	wraps  []queue.Poison

	text     string // of the original message
	textGone bool   // whether it was in a blob that is missing
	id       string // of the job; empty if unknown

	// isJob says that envelope is the job; otherwise unreadable is why the original
	// message cannot be used.
	isJob      bool
	envelope   queue.Envelope
	unreadable error

	// actedAt is the service's time of a replay, or a little earlier.
	actedAt time.Time
}

// delivery returns the job's description for the rules of its record.
func (w *work) delivery() checkpoint.Delivery {
	return checkpoint.Delivery{ID: w.envelope.ID, Kind: w.envelope.Kind, PayloadHash: w.envelope.Work(), Again: w.envelope.Again,
		Group: w.envelope.Group}
}

// workOf reads the original message of an item.
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

// open loads the text of the original message. An error other than
// [queue.ErrPayload] is a storage error, and may pass.
func (w *work) open(ctx context.Context, payloads *queue.Payloads) error {
	if jobid.Validate(w.poison.ID) == nil {
		w.id = w.poison.ID
	}
	w.text, w.unreadable = w.poison.Original(ctx, payloads)
	w.textGone = errors.Is(w.unreadable, queue.ErrPayload)
	return w.unreadable
}

// unwrap replaces the poison message by the one in its text, if that is one.
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
			id, kind = w.poison.MessageID, defaultKind // as a worker with that default kind would read it
		}
		e, err = foreign(w, id, kind)
	}
	w.envelope, w.unreadable, w.isJob = e, err, err == nil
	if w.isJob {
		w.id = e.ID
	}
}

// errNoKind means that the text is not a job.
var errNoKind = errors.New("it is another program's message and has no kind: set --default-kind to make it a job")

func foreign(w *work, id, kind string) (queue.Envelope, error) {
	if kind == "" {
		return queue.Envelope{}, errNoKind
	}
	if err := errors.Join(jobid.Validate(id), jobid.ValidateKind(kind)); err != nil {
		return queue.Envelope{}, fmt.Errorf("it cannot be a job: %w", err)
	}
	return queue.Foreign(w.text, id, kind, w.poison.PoisonedAt), nil
}

// recordOf reads the record of a job if only the job's id and kind are known; the zero
// value means that there is none.
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

// drop deletes a poison message, and then the blobs with original texts.
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
