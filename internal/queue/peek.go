package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Peeked is a message as it lies on the queue.
type Peeked struct {
	ID, Text   string
	InsertedAt time.Time // by the service's clock
}

// Peek returns up to n messages (at most [MaxClaim]) that are visible, and
// leaves them as they are. The service shows those at the front and no others:
// to see more, they must be claimed.
func (q *Queue) Peek(ctx context.Context, n int) ([]Peeked, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := q.client.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(min(n, MaxClaim)))})
	if err != nil {
		return nil, fmt.Errorf("peek at queue %s: %w", q.name, err)
	}
	peeked := make([]Peeked, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		p := Peeked{ID: *m.MessageID}
		if m.MessageText != nil {
			p.Text = *m.MessageText
		}
		if m.InsertionTime != nil {
			p.InsertedAt = *m.InsertionTime
		}
		peeked = append(peeked, p)
	}
	return peeked, nil
}
