package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// FollowUp describes a job that another job puts.
type FollowUp struct {
	// Name distinguishes the follow-up jobs of one job, such as "page 7". The id of the
	// new job is the [Job.Key] of Name.
	Name string

	// Kind names its handler.
	Kind string

	// Payload is its input: bytes ([]byte) as they are, and any other value as JSON.
	Payload any

	// Inputs are the files that the follow-up job needs.
	Inputs []Input

	// Delay is how long it waits at least before it can start, up to 7 days.
	Delay time.Duration

	// Deadline is when it should be done, and Estimate how long its work takes on a VM
	// that nothing interrupts, in whole seconds; both are optional. The deadline is passed
	// to its handler.
	Deadline time.Time
	Estimate time.Duration
}

// Put puts a follow-up job, and returns its id. It costs one call.
//
// A handler that is interrupted and runs again puts its follow-up jobs again, under the
// same ids, and each id has one outcome. So the same name must always stand for the
// same kind and payload. The new job may start at once, before this one has ended, and
// runs even if this one fails.
//
// The handler may return the error unchanged: without an answer of the storage service
// the job is retried, and an invalid kind or payload is permanent.
func (j *Job) Put(ctx context.Context, f FollowUp) (id string, err error) {
	if j.onPut == nil {
		return "", errors.New("nothing takes the follow-up jobs of this job: a test calls Control.OnPut")
	}
	id = j.Key(f.Name)
	if f.Payload, err = encodePayload(f.Payload); err != nil {
		return "", Permanent(fmt.Errorf("payload of the follow-up job %q: %w", f.Name, err))
	}
	if err := j.onPut(ctx, id, f); err != nil {
		return "", fmt.Errorf("put the follow-up job %q: %w", f.Name, err)
	}
	return id, nil
}

// encodePayload returns a payload as []byte, or as [json.RawMessage] if it is JSON.
func encodePayload(v any) (any, error) {
	switch data := v.(type) {
	case nil:
		return []byte(nil), nil
	case []byte:
		return data, nil
	}
	raw, err := json.Marshal(v)
	return json.RawMessage(raw), err
}
