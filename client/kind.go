package client

import (
	"context"
	"errors"
	"fmt"
)

// Kind is a kind of job with a payload of type P and a result of type R, the types of its
// handler ([job.Typed]). So the compiler checks the payloads of its jobs, and the use of their
// results.
//
//	var count = client.Kind[Range, Total]{Name: "count"}
//
//	id, err := count.Put(ctx, c, "", Range{To: 100})
//	...
//	total, err := count.Wait(ctx, c, id)
type Kind[P, R any] struct {
	// Name names the handler, as in [Spec].
	Name string
}

// Put puts a job of the kind as [Client.Put] does, and returns its id. With an empty id it
// has a new one.
func (k Kind[P, R]) Put(ctx context.Context, c *Client, id string, payload P) (string, error) {
	return c.Put(ctx, k.Spec(id, payload))
}

// Spec describes a job of the kind, for [Client.PutMany] or with further fields for
// [Client.Put].
func (k Kind[P, R]) Spec(id string, payload P) Spec {
	return Spec{ID: id, Kind: k.Name, Payload: payload}
}

// Result returns the result of a job of the kind that is done, with the errors and calls of
// [Client.Result], and one more: an [*OtherKindError] if the job is of another kind.
func (k Kind[P, R]) Result(ctx context.Context, c *Client, id string) (R, error) {
	r, err := c.read(ctx, id)
	if err == nil {
		err = k.check(id, r.Kind)
	}
	if err != nil {
		var none R
		return none, err
	}
	return decodeResult[R](c.resultOf(ctx, r))
}

// Wait waits until a job of the kind has ended as [Client.Wait] does, and returns what Result
// does.
func (k Kind[P, R]) Wait(ctx context.Context, c *Client, id string) (R, error) {
	outcome, err := c.outcome(ctx, id)
	if err == nil && !errors.Is(outcome.Err, ErrNewerVersion) {
		err = k.check(id, outcome.Job.Kind)
	}
	if err != nil {
		var none R
		return none, err
	}
	return decodeResult[R](outcome.Result, outcome.Err)
}

// decodeResult is [Decode] for the results of [job.Typed]: bytes are as they are, and a
// handler whose result is an interface may have none.
func decodeResult[R any](result []byte, err error) (R, error) {
	var v R
	switch to := any(&v).(type) {
	case *[]byte:
		*to = result
		return v, err
	case *any:
		if len(result) == 0 {
			return v, err
		}
	}
	return Decode[R](result, err)
}

// check returns an error if a record is of another kind.
func (k Kind[P, R]) check(id, kind string) error {
	if kind == k.Name {
		return nil
	}
	return &OtherKindError{ID: id, Kind: kind, Want: k.Name}
}

// OtherKindError says that a job is not of the kind that was asked for.
type OtherKindError struct{ ID, Kind, Want string }

// Error names both kinds.
func (e *OtherKindError) Error() string {
	return fmt.Sprintf("job %s is of the kind %s, not %s", e.ID, e.Kind, e.Want)
}
