package producer

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

// Spec is what a caller says about a job.
type Spec struct {
	// ID is the job's id and idempotency key. Default: a new UUIDv7.
	ID string

	// Kind names the handler. Required.
	Kind string

	// Payload is the handler's input. Default: empty.
	Payload queue.Payload

	// Deadline is handed to the handler. Default: none.
	Deadline time.Time

	Terms
}

// Terms are what may be said about one job, or about all of a run.
type Terms struct {
	// Delay keeps the job from being started for a while, up to
	// [queue.MaxDelay]. Default: none.
	Delay time.Duration

	// MaxRun is the most time that handlers may take for the job, over all
	// deliveries, and MaxSilence the most time without a report. Whole seconds.
	// The kind's own limits count where they are stricter. Default: none.
	MaxRun, MaxSilence time.Duration
}

// Check says what must be changed, or returns nil.
func (t Terms) Check() error {
	if t.Delay < 0 || t.Delay > queue.MaxDelay {
		return fmt.Errorf("delay %s: it must be between 0 and %s", t.Delay, queue.MaxDelay)
	}
	if err := queue.CheckLimit(t.MaxRun); err != nil {
		return fmt.Errorf("max run: %w", err)
	}
	if err := queue.CheckLimit(t.MaxSilence); err != nil {
		return fmt.Errorf("max silence: %w", err)
	}
	return nil
}

// Job is a job that can be put on a queue.
type Job struct {
	// Where says where in the input the job comes from: "line 3". Empty where it
	// is the only one.
	Where string

	// OwnID says that the id came with the job; otherwise it was made for it.
	OwnID bool

	envelope queue.Envelope
	delay    time.Duration
}

// ID returns the job's id.
func (j Job) ID() string { return j.envelope.ID }

// Kind returns the name of the job's handler.
func (j Job) Kind() string { return j.envelope.Kind }

// Delay returns how long the job is kept from being started.
func (j Job) Delay() time.Duration { return j.delay }

// Size returns the length of the payload in bytes.
func (j Job) Size() int64 {
	data, _ := j.envelope.Payload.Inline()
	return int64(len(data))
}

// delivery is what the rules of the job's record need to know of it.
func (j Job) delivery() checkpoint.Delivery {
	return checkpoint.Delivery{ID: j.ID(), Kind: j.Kind(), PayloadHash: j.envelope.Payload.Hash()}
}

// NewJob checks a job and gives it an id if it has none.
func NewJob(where string, s Spec) (Job, error) {
	if err := jobid.ValidateKind(s.Kind); err != nil {
		return Job{}, err
	}
	own := s.ID != ""
	if !own {
		id, err := uuid.NewV7()
		if err != nil {
			return Job{}, fmt.Errorf("make a job id: %w", err)
		}
		s.ID = id.String()
	}
	if err := jobid.Validate(s.ID); err != nil {
		return Job{}, err
	}
	if data, _ := s.Payload.Inline(); len(data) > queue.MaxPayload {
		return Job{}, fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data), queue.MaxPayload)
	}
	if year := s.Deadline.UTC().Year(); year < 0 || year > 9999 {
		return Job{}, fmt.Errorf("deadline %s is in the year %d in UTC; a message holds 0 to 9999", s.Deadline.Format(time.RFC3339), year)
	}
	if err := s.Check(); err != nil {
		return Job{}, err
	}
	return Job{
		Where: where, OwnID: own,
		envelope: queue.Envelope{ID: s.ID, Kind: s.Kind, Payload: s.Payload, Deadline: s.Deadline, MaxRun: s.MaxRun, MaxSilence: s.MaxSilence},
		delay:    s.Delay,
	}, nil
}

// JobError says which job was not enqueued, and why. Others are not concerned.
type JobError struct {
	// Where is the place of [Job], ID the job's id as far as there is one.
	Where, ID string
	Err       error
}

func (e *JobError) Error() string {
	if e.Where == "" {
		return e.Err.Error()
	}
	return e.Where + ": " + e.Err.Error()
}

func (e *JobError) Unwrap() error { return e.Err }
