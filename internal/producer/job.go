package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// Spec describes a job to put.
type Spec struct {
	// Where is the job's place in the input, such as "line 3". Empty if it is the
	// only job.
	Where string

	// ID is the job's id and idempotency key. Default: a new UUIDv7.
	ID string

	// Kind names the handler. Required.
	Kind string

	// Payload is the handler's input. Default: empty.
	Payload queue.Payload

	// Deadline is when the job should be done. Default: none.
	Deadline time.Time

	// Inputs are the files that the job needs. Default: none.
	Inputs []job.Input

	// Group is the group of jobs that the job belongs to. Default: none.
	Group string

	// OnDemand puts the job on the on-demand queue, for VMs of regular priority.
	OnDemand bool

	// Urgent puts the job on the queue First, before the jobs that wait.
	Urgent bool

	Terms
}

// Terms are settings of one job, or of all jobs of a run.
type Terms struct {
	// Delay is how long the message stays hidden before the job can start, up to
	// [queue.MaxDelay]. Default: none.
	Delay time.Duration

	// MaxRun limits the job's run time over all deliveries, and MaxSilence the time
	// between two reports. Whole seconds. The kind's own limits apply too, and the
	// stricter ones win. Default: none.
	MaxRun, MaxSilence time.Duration

	// Estimate is how long the work takes on a VM that nothing interrupts. Whole
	// seconds. Default: not known.
	Estimate time.Duration

	// MaxFailures is how many failures in a row dead-letter the job, if its kind allows as
	// many. Default: the limit of the kind.
	MaxFailures int
}

// Check returns an error that states what to change, or nil.
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
	if err := queue.CheckEstimate(t.Estimate); err != nil {
		return fmt.Errorf("estimate: %w", err)
	}
	if err := queue.CheckFailures(t.MaxFailures); err != nil {
		return fmt.Errorf("max failures: %w", err)
	}
	return nil
}

// Job is a job that can be put on a queue.
type Job struct {
	// Where is the job's [Spec.Where].
	Where string

	// OwnID says that the caller chose the id; otherwise it was generated.
	OwnID bool

	envelope queue.Envelope
	delay    time.Duration
	onDemand bool
	urgent   bool
}

// ID returns the job's id.
func (j Job) ID() string { return j.envelope.ID }

// Kind returns the name of the job's handler.
func (j Job) Kind() string { return j.envelope.Kind }

// Group returns the job's group, empty for none.
func (j Job) Group() string { return j.envelope.Group }

// Delay returns how long the job's message stays hidden before the job can start.
func (j Job) Delay() time.Duration { return j.delay }

// Warning returns why the job cannot meet its deadline if it is put now, or "". It is put
// all the same.
func (j Job) Warning(now time.Time) string {
	e := j.envelope
	left := e.Deadline.Sub(now)
	switch {
	case e.Deadline.IsZero():
		return ""
	case left <= 0:
		return fmt.Sprintf("its deadline, %s, has passed", e.Deadline.Format(time.RFC3339))
	case j.delay >= left:
		return fmt.Sprintf("its deadline is in %s, and it cannot start before %s", left.Round(time.Second), j.delay)
	case e.Estimate > left-j.delay:
		return fmt.Sprintf("its deadline is in %s, and by its estimate it takes %s even if nothing interrupts it", left.Round(time.Second),
			j.delay+e.Estimate)
	}
	return ""
}

// Size returns the length of the payload in bytes.
func (j Job) Size() int64 {
	data, _ := j.envelope.Payload.Inline()
	return int64(len(data))
}

// Work returns the hash of the job's payload and inputs, as its record has it.
func (j Job) Work() string { return j.envelope.Work() }

// delivery returns the job's description for the rules of its record.
func (j Job) delivery() checkpoint.Delivery {
	return checkpoint.Delivery{ID: j.ID(), Kind: j.Kind(), PayloadHash: j.Work(), Group: j.Group(), Again: checkpoint.Newest}
}

// recorded is delivery with what a new record of the job says for people.
func (j Job) recorded() checkpoint.Delivery {
	d := j.delivery()
	d.Deadline, d.Estimate, d.InputList = j.envelope.Deadline, j.envelope.Estimate, checkpoint.PackInputs(j.envelope.Inputs)
	return d
}

// NewJob validates a job and generates an id if it has none.
func NewJob(s Spec) (Job, error) {
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
		return Job{}, fmt.Errorf("payload has %d bytes; at most %d are allowed: put the data in a blob and name it in the payload", len(data),
			queue.MaxPayload)
	}
	if s.Urgent && s.OnDemand {
		return Job{}, errors.New("a job is urgent, or on demand: no queue is both")
	}
	if year := s.Deadline.UTC().Year(); year < 0 || year > 9999 {
		return Job{}, fmt.Errorf("deadline %s is in the year %d in UTC; a message holds 0 to 9999", s.Deadline.Format(time.RFC3339), year)
	}
	if err := s.Check(); err != nil {
		return Job{}, err
	}
	if s.Group != "" {
		if err := jobid.ValidateGroup(s.Group); err != nil {
			return Job{}, err
		}
	}
	inputs, err := named.Encode(s.Inputs)
	if err != nil {
		return Job{}, err
	}
	if len(inputs) > queue.MaxInputs {
		return Job{}, fmt.Errorf("inputs have %d bytes as JSON; at most %d are allowed: name a prefix, or a manifest that lists them",
			len(inputs), queue.MaxInputs)
	}
	return Job{
		Where: s.Where, OwnID: own, onDemand: s.OnDemand, urgent: s.Urgent,
		envelope: queue.Envelope{ID: s.ID, Kind: s.Kind, Payload: s.Payload, Deadline: s.Deadline, Estimate: s.Estimate, MaxRun: s.MaxRun,
			MaxSilence: s.MaxSilence, MaxFailures: s.MaxFailures, Inputs: inputs, Group: s.Group},
		delay: s.Delay,
	}, nil
}

// newJob is NewJob with a [*JobError].
func newJob(s Spec) (Job, error) {
	j, err := NewJob(s)
	if err != nil {
		return Job{}, &JobError{Where: s.Where, ID: s.ID, Err: err}
	}
	return j, nil
}

// JobError says which job was not put, and why. It does not affect other jobs.
type JobError struct {
	// Where is the job's [Job.Where], and ID the job's id, or empty if unknown.
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
