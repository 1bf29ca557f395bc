package job

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// TypedJob is one run of a job, as a handler of [Typed] sees it.
type TypedJob[Payload, State any] struct {
	*Job

	// Payload is the producer's input, decoded from JSON.
	Payload Payload

	// State is the state of the last checkpoint, decoded from JSON, or the zero value on
	// a fresh start. The handler may change it, and calls ReportState when it is
	// complete.
	State State

	// Resumed says that State is from a checkpoint.
	Resumed bool

	version int
}

// Typed returns a handler whose payload, state and result are values, encoded as JSON.
//
// Before it calls run, it decodes the payload and the state. A payload that cannot be
// decoded dead-letters the job; so does a payload that has a method Validate() error
// and returns an error from it. version is the version of the state's format, as for
// [Progress.Version]: a state of another version is refused like by [Job.CheckVersion].
// If *State has the method
//
//	Upgrade(version int, state []byte) error
//
// it gets the states of earlier versions, as they were recorded.
//
// The result of run is encoded as JSON, unless it is a nil interface, which is no result, or
// []byte. After the context is cancelled, a zero value is no proof that the job is finished,
// like no result: a loop that ends with its context returns one. A program that puts jobs
// names the types of payload and result in a Kind of package client.
func Typed[Payload, State, Result any](version int,
	run func(ctx context.Context, j *TypedJob[Payload, State]) (result Result, err error),
) Handler {
	return HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		t := &TypedJob[Payload, State]{Job: j, version: version}
		if err := t.decodePayload(); err != nil {
			return nil, Permanent(err)
		}
		if err := t.restore(); err != nil {
			return nil, err
		}
		result, err := run(ctx, t)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil && !j.reportedEnd() && reflect.ValueOf(&result).Elem().IsZero() {
			return nil, nil
		}
		return encodeResult(result)
	})
}

// reportedEnd reports whether this run has reported that everything is done.
func (j *Job) reportedEnd() bool {
	last := j.latest.Load()
	return last != nil && last.Fraction >= 1
}

// ReportState reports the state as it is now, with the part that is done (0 to 1) and a
// short text for people, like [Job.Report].
func (t *TypedJob[Payload, State]) ReportState(fraction float64, text string) error {
	state, err := json.Marshal(t.State)
	if err != nil {
		return Permanent(fmt.Errorf("encode the state: %w", err))
	}
	t.Report(Progress{State: state, Version: t.version, Fraction: fraction, Text: text})
	return nil
}

func (t *TypedJob[Payload, State]) decodePayload() error {
	if err := json.Unmarshal(t.Job.Payload, &t.Payload); err != nil {
		return fmt.Errorf("the payload is not that of the kind %s: %w", t.Kind, err)
	}
	if p, ok := any(&t.Payload).(interface{ Validate() error }); ok {
		return p.Validate()
	}
	return nil
}

// restore decodes the saved state.
func (t *TypedJob[Payload, State]) restore() error {
	if !t.saved.HasState() {
		return nil
	}
	upgrade, ok := any(&t.State).(interface{ Upgrade(int, []byte) error })
	if earlier := t.saved.Version < t.version; !ok || !earlier {
		if err := t.CheckVersion(t.version); err != nil {
			return err
		}
		upgrade = nil
	}
	state, version, _ := t.Saved()
	var err error
	if upgrade != nil {
		err = upgrade.Upgrade(version, state)
	} else {
		err = json.Unmarshal(state, &t.State)
	}
	if err != nil {
		return Permanent(fmt.Errorf("the recorded state cannot be read: %w", err))
	}
	t.Resumed = true
	return nil
}

func encodeResult(result any) ([]byte, error) {
	switch r := result.(type) {
	case nil:
		return nil, nil
	case []byte:
		return r, nil
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		return nil, Permanent(fmt.Errorf("encode the result: %w", err))
	}
	return encoded, nil
}
