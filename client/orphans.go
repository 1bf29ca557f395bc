package client

import (
	"context"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/operate"
)

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

// Orphan is a job that has not ended, of which no message was seen.
type Orphan struct {
	Job Job

	// Idle is the time since its record was written.
	Idle time.Duration

	// HasPayload is false if the payload was in the lost message: then
	// [RequeueOptions.Payload] has to give it.
	HasPayload bool

	orphan operate.Orphan
}

// Orphans returns the jobs that have not ended, whose record was not written for that
// time or longer, and of which no message is seen. It changes nothing. Queues cannot be
// searched: see [Orphans.Complete].
func (c *Client) Orphans(ctx context.Context, idle time.Duration) (*Orphans, error) {
	found, err := c.poison().Orphans(ctx, idle)
	if err != nil {
		return nil, c.readable(err, toRead)
	}
	all := &Orphans{Queued: found.Queued, Seen: found.Seen}
	for _, o := range found.Orphans {
		all.Jobs = append(all.Jobs, Orphan{Job: jobOf(o.Record), Idle: o.Idle, HasPayload: o.HasPayload, orphan: o})
	}
	return all, nil
}

// RequeueOptions are settings of [Client.Requeue].
type RequeueOptions struct {
	// Payload is the job's payload, for a job that has lost it with its message. It must
	// have the recorded SHA-256; JSON may be formatted in any way.
	Payload []byte

	// OnDemand puts the message on the queue for VMs of regular priority: a record does
	// not contain the queue that its job was on.
	OnDemand bool
}

// Check returns why [Client.Requeue] would refuse the job: its payload is missing, or is
// not the one that is given.
func (o *Orphan) Check(options RequeueOptions) error {
	_, err := o.supplied(options)
	return err
}

// supplied returns the orphan with the payload that is given.
func (o *Orphan) supplied(options RequeueOptions) (operate.Orphan, error) {
	orphan := o.orphan
	switch {
	case options.Payload != nil:
		return orphan, orphan.Supply(options.Payload)
	case !orphan.HasPayload:
		return orphan, operate.ErrNoPayload
	}
	return orphan, nil
}

// Requeue puts a new message for a job that has lost its own, so that it continues from
// its recorded state. It does nothing for a job that has ended or was written since it
// was found. A second message for a job does no harm.
//
// Settings that only the old message had are lost: deadline, limits and trace.
func (c *Client) Requeue(ctx context.Context, o Orphan, options RequeueOptions) ActionResult {
	r := ActionResult{ID: o.Job.ID, Was: o.Job.Status}
	orphan, err := o.supplied(options)
	if err != nil && options.Payload != nil {
		r.Action, r.Detail, r.Err = Refused, err.Error(), err
		return r
	}
	to := c.stores.Queue
	if options.OnDemand {
		to = c.stores.OnDemand
	}
	action, detail, err := c.poison().Requeue(ctx, orphan, to)
	r.Action, r.Detail, r.Err = Action(action), detail, c.readable(err, toWrite)
	switch {
	case r.Err != nil:
		r.Detail = r.Err.Error()
	case r.Action == Refused:
		r.Err = fmt.Errorf("job %s: %s", r.ID, detail)
	}
	return r
}
