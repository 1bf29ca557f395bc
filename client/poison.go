package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
)

// PoisonMessage is a message on the poison queue: a job that was dead-lettered, or a message
// that no worker could read.
type PoisonMessage struct {
	// MessageID is the message's id on the poison queue, and OriginalID the id of the
	// job's original message.
	MessageID, OriginalID string

	// JobID is the job's id; empty if it is not known.
	JobID string

	Kind   string
	Reason string
	Worker string // that gave the job up
	Queue  string // that the job was on

	// GivenUpAt is when the job was dead-lettered, by the worker's clock, and InsertedAt when
	// the message was put, by the clock of the storage service.
	GivenUpAt, InsertedAt time.Time

	// Err is why this is not a message as workers put them; nil if it is. Then only the
	// message's id and InsertedAt are known.
	Err error

	item operate.Item
}

func poisonMessageOf(it operate.Item) PoisonMessage {
	p := it.Poison
	return PoisonMessage{
		MessageID: it.MessageID, OriginalID: p.MessageID, JobID: p.ID, Kind: p.Kind, Reason: p.Reason, Worker: p.Worker, Queue: p.Origin,
		GivenUpAt: p.PoisonedAt, InsertedAt: it.InsertedAt, Err: it.Fault, item: it,
	}
}

// PeekPoison returns the messages at the front of the poison queue, at most 32, and about how
// many there are in all, also hidden ones. It changes nothing.
func (c *Client) PeekPoison(ctx context.Context) (messages []PoisonMessage, about int, err error) {
	items, about, err := c.poison().Peek(ctx)
	for _, it := range items {
		messages = append(messages, poisonMessageOf(it))
	}
	return messages, about, c.failure(ctx, err, toRead)
}

// ListPoison yields all messages on the poison queue. Those behind the front can only be
// read by claiming them, so each is hidden from other operators until the sequence ends,
// for two minutes at most. An error comes last.
func (c *Client) ListPoison(ctx context.Context) iter.Seq2[PoisonMessage, error] {
	return func(yield func(PoisonMessage, error) bool) {
		err := c.poison().All(ctx, func(it operate.Item) error {
			if !yield(poisonMessageOf(it), nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(PoisonMessage{}, c.readable(err, toWrite))
		}
	}
}

// errStopped ends a scan because its caller wants no more.
var errStopped = errors.New("no more is wanted")

// FindPoison returns the first message of a job, or the message of that id: from those
// at the front, which changes nothing, or else from all of them as [Client.ListPoison].
// The error is [ErrNotPoison] if there is none.
func (c *Client) FindPoison(ctx context.Context, id string) (PoisonMessage, error) {
	messages, about, err := c.PeekPoison(ctx)
	for _, m := range messages {
		if m.is(id) {
			return m, nil
		}
	}
	if err != nil {
		return PoisonMessage{}, err
	}
	if about > len(messages) {
		for m, err := range c.ListPoison(ctx) {
			if err != nil || m.is(id) {
				return m, err
			}
		}
	}
	return PoisonMessage{}, fmt.Errorf("%s: %w", id, ErrNotPoison)
}

func (m PoisonMessage) is(id string) bool {
	selected, _ := operate.Selection{Names: []string{id}}.Has(m.item)
	return selected
}

// PoisonDetails are the kept data of a dead-lettered job.
type PoisonDetails struct {
	// Text is the text of the job's message, empty if it is gone.
	Text string

	// Job is the job's record; nil if there is none.
	Job *Job
}

// PoisonDetails reads the kept data of a message's job.
func (c *Client) PoisonDetails(ctx context.Context, m PoisonMessage) (PoisonDetails, error) {
	text, record, err := c.poison().Lookup(ctx, m.item)
	d := PoisonDetails{Text: text}
	if record != nil && record.Version != 0 {
		d.Job = new(jobOf(*record))
	}
	return d, c.readable(err, toRead)
}

// Selection selects jobs that were dead-lettered. The zero value selects none.
type Selection struct {
	// All selects every job on the poison queue, and IDs the jobs with these ids.
	All bool
	IDs []string

	// Filter narrows the selection.
	Filter PoisonFilter
}

// PoisonFilter selects messages on the poison queue by their contents. The zero value
// selects all.
type PoisonFilter = operate.Filter

// Matches reports whether a filter selects the message.
func (m PoisonMessage) Matches(f PoisonFilter) bool {
	selected, _ := operate.Selection{All: true, Filter: f}.Has(m.item)
	return selected
}

// ReplayOptions are settings of [Client.Replay].
type ReplayOptions struct {
	// FromScratch starts the jobs without their recorded state.
	FromScratch bool

	// DefaultKind is the kind of messages of other programs, which are not envelopes.
	// Without it they are refused.
	DefaultKind string
}

// Replay starts jobs again that were dead-lettered, from their recorded state. It calls
// report with the outcome for each message on the poison queue that is selected, and
// for each id that has none there, one at a time; an error of report ends it. Replaying
// again is harmless: the record of a job decides the action.
//
// It reads the poison queue to its end, and so hides the messages from other operators
// until it returns.
func (c *Client) Replay(ctx context.Context, s Selection, o ReplayOptions, report func(ActionResult) error) error {
	return c.operate(ctx, s, report, func(s operate.Selection, report func(operate.Outcome) error) error {
		p := c.poison()
		p.DefaultKind = o.DefaultKind
		c.stores.Jobs.ReadToPut(ctx)
		return p.Replay(ctx, s, o.FromScratch, report)
	})
}

// Purge cancels jobs permanently that were dead-lettered, and removes their state, payload
// and message; this cannot be undone. It reports like [Client.Replay]. The record stays,
// so that no old message starts the job again.
//
// Where a job's id was used for other work, only the message is removed, and only if it
// is selected by the message's own id.
func (c *Client) Purge(ctx context.Context, s Selection, report func(ActionResult) error) error {
	return c.operate(ctx, s, report, func(s operate.Selection, report func(operate.Outcome) error) error {
		return c.poison().Purge(ctx, s, report)
	})
}

// poison is the access to the poison queue.
func (c *Client) poison() *operate.PoisonQueue {
	return &operate.PoisonQueue{
		Poison: c.stores.Poison, Queue: c.stores.Jobs, OnDemand: c.stores.OnDemand, Queues: c.stores.JobQueues,
		Payloads: c.stores.Payloads, Records: c.stores.Records, Name: c.name,
	}
}

// operate runs an operation on the poison queue, and reports the ids that have no message there.
func (c *Client) operate(ctx context.Context, s Selection, report func(ActionResult) error,
	do func(operate.Selection, func(operate.Outcome) error) error) error {
	var mu sync.Mutex // guards what follows, and calls of report
	found := map[string]bool{}
	var reportErr error
	err := do(operate.Selection{All: s.All, Names: s.IDs, Filter: s.Filter}, func(o operate.Outcome) error {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range []string{o.Job, o.Poison.ID, o.MessageID, o.Poison.MessageID} {
			found[id] = true
		}
		err := report(c.actionResult(o))
		if reportErr == nil {
			reportErr = err
		}
		return err
	})
	switch {
	case reportErr != nil:
		return c.readable(reportErr, toWrite)
	case err != nil:
		return c.failure(ctx, err, toWrite)
	}
	for _, id := range s.IDs {
		if found[id] {
			continue
		}
		if err := report(ActionResult{ID: id, Action: NotPoison, Err: fmt.Errorf("%s: %w", id, ErrNotPoison)}); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) actionResult(o operate.Outcome) ActionResult {
	r := ActionResult{ID: o.Job, MessageID: o.MessageID, Action: o.Action, Detail: o.Detail, Err: c.readable(o.Err, toWrite)}
	if r.ID == "" {
		r.ID = o.MessageID
	}
	switch {
	case r.Action == Refused:
		r.Err = fmt.Errorf("job %s: %s", r.ID, o.Detail)
	case r.Err != nil:
		r.Detail = r.Err.Error()
	}
	return r
}

// Orphans are jobs that may have lost their messages.
type Orphans struct {
	Jobs []Orphan // the longest idle first

	// Queued is the number of messages on the queues of jobs, approximately and
	// including hidden ones, and Seen how many of them the service shows.
	Queued, Seen int
}

// Complete reports whether all messages were seen: then the jobs have none. Otherwise
// one may have a message that is hidden, or behind the 32 at the front of its queue.
func (o *Orphans) Complete() bool { return o.Seen >= o.Queued }

// Orphan is a job that has not ended. No message of it was seen.
type Orphan struct {
	Job Job

	// Idle is the time since its record was written.
	Idle time.Duration

	// HasPayload is false if the payload was in the lost message: then
	// [RequeueOptions.Payload] has to give it.
	HasPayload bool

	// Inputs is the JSON list of the job's inputs, nil for a job without any. HasInputs is
	// false if the job has inputs and their list was in the lost message: then
	// [RequeueOptions.Inputs] has to give it.
	Inputs    []byte
	HasInputs bool

	orphan operate.Orphan
}

// Orphans returns the jobs that have not ended, whose record was not written for that
// time or longer, and whose message is not seen. It changes nothing. Queues cannot be
// searched: see [Orphans.Complete].
func (c *Client) Orphans(ctx context.Context, idle time.Duration) (*Orphans, error) {
	if err := c.readShards(ctx); err != nil {
		return nil, c.failure(ctx, err, toRead)
	}
	found, err := c.poison().Orphans(ctx, idle)
	if err != nil {
		return nil, c.failure(ctx, err, toRead)
	}
	all := &Orphans{Queued: found.Queued, Seen: found.Seen}
	for _, o := range found.Orphans {
		all.Jobs = append(all.Jobs, Orphan{Job: jobOf(o.Record), Idle: o.Idle, HasPayload: o.HasPayload, Inputs: o.Inputs,
			HasInputs: o.HasInputs, orphan: o})
	}
	slices.SortStableFunc(all.Jobs, func(a, b Orphan) int { return cmp.Compare(b.Idle, a.Idle) })
	return all, nil
}

// RequeueOptions are settings of [Client.Requeue].
type RequeueOptions struct {
	// Payload is the job's payload, for a job that has lost it with its message. It must
	// have the recorded SHA-256; JSON may be formatted in any way.
	Payload []byte

	// Inputs is the JSON list of the job's inputs as its message had it, for a job that has
	// lost it with its message.
	Inputs []byte

	// OnDemand puts the message on the queue for VMs of regular priority: a record does
	// not contain the queue that its job was on.
	OnDemand bool
}

// CheckRequeue returns why [Client.Requeue] would refuse the job: its payload or its inputs
// are missing, or differ from the given payload or inputs.
func (c *Client) CheckRequeue(ctx context.Context, o Orphan, options RequeueOptions) error {
	_, err := c.supplied(ctx, o, options)
	return err
}

// supplied returns the orphan with the given payload and inputs.
func (c *Client) supplied(ctx context.Context, o Orphan, options RequeueOptions) (operate.Orphan, error) {
	orphan := o.orphan
	if options.Payload == nil && options.Inputs == nil {
		return orphan, orphan.Check()
	}
	return orphan, c.poison().Supply(ctx, &orphan, options.Payload, options.Inputs)
}

// Requeue puts a new message for a job that has lost its own, so that it continues from
// its recorded state. It does nothing for a job that has ended or was written since it
// was found. A second message for a job does no harm.
//
// Settings that only the old message had are lost: deadline, limits and trace.
func (c *Client) Requeue(ctx context.Context, o Orphan, options RequeueOptions) ActionResult {
	r := ActionResult{ID: o.Job.ID, Was: o.Job.Status}
	orphan, err := c.supplied(ctx, o, options)
	if err != nil && (options.Payload != nil || options.Inputs != nil) {
		r.Action, r.Detail, r.Err = Refused, err.Error(), err
		return r
	}
	c.stores.Jobs.ReadToPut(ctx)
	to := queue.Jobs(c.stores.Jobs)
	if options.OnDemand {
		to = c.stores.OnDemand
	}
	action, detail, err := c.poison().Requeue(ctx, orphan, to)
	r.Action, r.Detail, r.Err = action, detail, c.readable(err, toWrite)
	switch {
	case r.Err != nil:
		r.Detail = r.Err.Error()
	case r.Action == Refused:
		r.Err = fmt.Errorf("job %s: %s", r.ID, detail)
	}
	return r
}
