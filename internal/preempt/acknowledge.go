package preempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

const (
	// acknowledgeTries is how often one acknowledgement is sent at most. It is
	// a courtesy, without which the event starts at its NotBefore.
	acknowledgeTries = 4

	// acknowledgeTimeout bounds one try, as for a poll.
	acknowledgeTimeout = pollTimeout
)

// Acknowledge tells the service that the event with this id need not wait for
// its NotBefore: a StartRequest. It lets the event go ahead for all its
// Resources, not for this VM alone. The service may take its time, and agrees
// as well when somebody acknowledged before.
//
// What may pass is tried again, four times in all. The error is a [StatusError]
// of status 400 when the event is not listed any more, otherwise as for
// [Client.Events].
func (c *Client) Acknowledge(ctx context.Context, id string) error {
	body, err := json.Marshal(startRequests{[]startRequest{{id}}})
	if err != nil {
		return fmt.Errorf("acknowledge event %s: %w", id, err)
	}
	for failures := 0; ; {
		err := c.tryAcknowledge(ctx, body)
		if err == nil {
			return nil
		}
		if failures++; failures == acknowledgeTries || !mayPass(err) {
			return fmt.Errorf("acknowledge event %s: %w", id, err)
		}
		if stop := sleep(ctx, retryDelay(failures, isThrottled(err))); stop != nil {
			return fmt.Errorf("acknowledge event %s: %w (last attempt: %w)", id, stop, err)
		}
	}
}

func (c *Client) tryAcknowledge(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeTimeout)
	defer cancel()
	_, err := c.askEvents(ctx, Later, http.MethodPost, body)
	return err
}

// startRequests is the body of an acknowledgement.
type startRequests struct {
	StartRequests []startRequest
}

type startRequest struct {
	EventID string `json:"EventId"`
}

// mayPass reports whether a request that failed so may succeed when repeated:
// not when the service answered that it is a bad one.
func mayPass(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return true
	}
	switch status.Status {
	case http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		return true
	}
	return status.Status >= http.StatusInternalServerError
}
