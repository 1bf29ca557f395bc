package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

// Why an orphan cannot be requeued: see [Orphan.Supply].
var (
	ErrNoPayload = errors.New("its payload was in its message and is gone with it; give it with --payload")
	ErrNoInputs  = errors.New("its list of inputs was in its message and is gone with it, since the record has no room for it or an older " +
		"worker wrote the record; give it with --inputs")
)

// Orphan is a job that has not ended, whose record was not written for a while, and
// whose message was not seen.
type Orphan struct {
	Record checkpoint.Record

	// Idle is the time since the record was written, by the service's clock.
	Idle time.Duration

	// Payload is the payload for a new message. HasPayload is false if the payload was
	// in the lost message: see [Orphan.Supply].
	Payload    queue.Payload
	HasPayload bool

	// Inputs is the JSON of the inputs for a new message. HasInputs is false if the job
	// has some and they were in the lost message.
	Inputs    []byte
	HasInputs bool
}

// Check returns why the orphan cannot be requeued as it is, or nil.
func (o *Orphan) Check() error {
	switch {
	case !o.HasInputs:
		return ErrNoInputs
	case !o.HasPayload:
		return ErrNoPayload
	}
	return nil
}

// OrphanReport lists the jobs of a deployment that may have lost their messages.
type OrphanReport struct {
	Orphans []Orphan // the longest idle first

	// Queued is the approximate number of messages on the queues of jobs, including
	// hidden ones, and Seen how many of them were seen.
	Queued, Seen int
}

// Complete reports whether every message was seen: then the orphans have none.
// Otherwise an orphan may have a message that is hidden, or behind the 32 at the
// front of its queue.
func (s *OrphanReport) Complete() bool { return s.Seen >= s.Queued }

// Orphans finds jobs that are open or running, whose record was not written for idle or
// longer, and that have no message among the messages that the service shows. It
// changes nothing. Queues cannot be searched, so an orphan may have a message
// nevertheless: [OrphanReport.Complete] reports whether that is possible.
func (p *PoisonQueue) Orphans(ctx context.Context, idle time.Duration) (*OrphanReport, error) {
	s := &OrphanReport{}
	for r, err := range p.Records.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		age := r.ReadAt.Sub(r.ModifiedAt)
		if (r.Status == checkpoint.Open || r.Status == checkpoint.Running) && age >= idle {
			inputs := r.UnpackInputs()
			s.Orphans = append(s.Orphans, Orphan{Record: r, Idle: age, Inputs: inputs, HasInputs: inputs != nil || r.Inputs == ""})
		}
	}
	visible, err := lookAt(ctx, p.Queues()...)
	if err != nil {
		return nil, err
	}
	s.Queued, s.Seen = visible.queued, visible.seen
	s.Orphans = slices.DeleteFunc(s.Orphans, func(o Orphan) bool { return visible.ids[o.Record.ID] })
	slices.SortFunc(s.Orphans, func(a, b Orphan) int { return cmp.Compare(b.Idle, a.Idle) })
	return s, p.findPayloads(ctx, s.Orphans)
}

// front is the part of the queues of jobs that the service shows.
type front struct {
	ids map[string]bool // of the jobs whose messages are visible at the front

	// queued is the number of messages, hidden ones included, and seen how many of them
	// are visible at the front. The service counts too many messages at times, and never
	// too few.
	queued, seen int
}

// complete reports whether every message was seen.
func (f *front) complete() bool { return f.seen >= f.queued }

// lookAtOnce is how many queues are looked at at once.
const lookAtOnce = 16

// lookAt looks at the front of queues. It changes nothing.
func lookAt(ctx context.Context, queues ...*queue.Queue) (front, error) {
	f := front{ids: map[string]bool{}}
	var mu sync.Mutex // guards f
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookAtOnce)
	for _, q := range queues {
		group.Go(func() error {
			about, err := q.Depth(ctx) // before Peek, so that a message put in between makes the look incomplete
			if queueerror.HasCode(err, queueerror.QueueNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			messages, err := q.Peek(ctx, queue.MaxClaim)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			f.queued, f.seen = f.queued+about, f.seen+min(len(messages), about)
			for _, m := range messages {
				if e, err := queue.Decode(m.Text); err == nil {
					f.ids[e.ID] = true
				} else {
					f.ids[m.ID] = true // the job of a foreign message has its id
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return front{}, err
	}
	return f, nil
}

func (p *PoisonQueue) findPayloads(ctx context.Context, orphans []Orphan) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range orphans {
		group.Go(func() (err error) {
			o := &orphans[i]
			if o.HasInputs {
				o.Payload, o.HasPayload, err = p.Payloads.Find(ctx, o.Record.ID, o.Inputs, o.Record.PayloadHash, o.Record.Again)
			}
			return err
		})
	}
	return group.Wait()
}

// Supply sets the contents of the lost message: the payload, and the JSON list of inputs;
// nil if not given. It returns an error if they do not have the recorded hash together.
// JSON may be formatted in any way.
func (p *PoisonQueue) Supply(ctx context.Context, o *Orphan, payload, inputs []byte) error {
	lists := [][]byte{o.Inputs}
	switch {
	case inputs != nil:
		list, err := queue.CompactInputs(inputs)
		if err != nil {
			return fmt.Errorf("the inputs of job %s: %w", o.Record.ID, err)
		}
		lists = [][]byte{list}
		if all, err := named.Parse(list); err == nil { // as producer writes them
			if list, err = named.Encode(all); err == nil {
				lists = append(lists, list)
			}
		}
	case !o.HasInputs:
		return ErrNoInputs
	}
	for _, list := range lists {
		found, ok, err := p.payloadFor(ctx, o.Record, payload, list)
		if err != nil {
			return err
		}
		if ok {
			o.Payload, o.HasPayload, o.Inputs, o.HasInputs = found, true, list, true
			return nil
		}
	}
	id, hash := o.Record.ID, o.Record.PayloadHash
	switch {
	case payload == nil:
		return fmt.Errorf("with these inputs no payload in storage has the recorded hash %s: they are not those of the message of job %s, or %w",
			hash, id, ErrNoPayload)
	case lists[0] != nil:
		return fmt.Errorf("this is not the payload of job %s: together with its inputs it does not have the recorded hash %s", id, hash)
	}
	return fmt.Errorf("this is not the payload of job %s: its SHA-256 is %s, the record has %s", id, queue.BytesPayload(payload).Hash(), hash)
}

// payloadFor returns the payload of a job with those inputs: the given payload, or, if given
// is nil, the payload in storage. ok is false if that is not the job's payload.
func (p *PoisonQueue) payloadFor(ctx context.Context, r checkpoint.Record, given, inputs []byte) (found queue.Payload, ok bool, err error) {
	if given == nil {
		return p.Payloads.Find(ctx, r.ID, inputs, r.PayloadHash, r.Again)
	}
	for _, parse := range []func([]byte) (queue.Payload, error){
		queue.JSONPayload,
		func(data []byte) (queue.Payload, error) { return queue.BytesPayload(data), nil },
	} {
		candidate, err := parse(given)
		if err == nil && (queue.Envelope{Payload: candidate, Inputs: inputs}).Work() == r.PayloadHash {
			return candidate, true, nil
		}
	}
	return queue.Payload{}, false, nil
}

// Requeue puts a new message for an orphan on a queue, with resume, so that the
// job continues from its recorded state. It reads the record again and does
// nothing for a job that has ended, or was written since it was found. A second
// message for a job is absorbed as a duplicate.
//
// Settings that only the old message had are lost: max_run, max_silence and trace.
func (p *PoisonQueue) Requeue(ctx context.Context, o Orphan, to queue.Jobs) (Action, string, error) {
	r, err := p.Records.Read(ctx, o.Record.ID)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return Dropped, "its record is gone", nil
	case err != nil:
		return Failed, "", err
	case r.Status.Final():
		return Dropped, fmt.Sprintf("its job is %s already", r.Status), nil
	case r.Token != o.Record.Token || r.Write != o.Record.Write: // a listing has the ETag in another form
		return Dropped, "its record was written a moment ago: a worker has the job", nil
	case !o.HasInputs:
		return Refused, ErrNoInputs.Error(), nil
	case !o.HasPayload:
		return Refused, ErrNoPayload.Error(), nil
	}
	if err := errors.Join(jobid.Validate(r.ID), jobid.ValidateKind(r.Kind)); err != nil {
		return Refused, fmt.Sprintf("no message can be made from its record: %v", err), nil
	}
	e := queue.Envelope{ID: r.ID, Kind: r.Kind, Payload: o.Payload, Inputs: o.Inputs, EnqueuedAt: r.CreatedAt, Deadline: r.Deadline,
		Estimate: r.Estimate.Truncate(time.Second), Group: r.Group, Again: r.Again}
	if jobid.ValidateGroup(e.Group) != nil {
		e.Group = "" // the record keeps it
	}
	if queue.CheckEstimate(e.Estimate) != nil {
		e.Estimate = 0
	}
	if err := to.For(r.ID).PutMoved(ctx, e, 0, p.Payloads); err != nil {
		return Failed, "", err
	}
	return Requeued, replayedFrom(r, false), nil
}
