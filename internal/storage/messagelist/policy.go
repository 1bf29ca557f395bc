package messagelist

import (
	"context"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Message is one claimed message.
type Message struct {
	ID, Receipt, Text     string
	Deliveries            int64
	InsertedAt, ExpiresAt time.Time
}

// List receives the messages of one call.
type List struct {
	Messages []Message

	// Decoded says that Messages are the response's, and that the SDK returns none.
	// Otherwise the SDK has decoded them.
	Decoded bool
}

type key struct{}

// In returns a context for the call whose messages l receives.
func (l *List) In(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, l) }

// Policy decodes the responses of calls that have a [List]. It must be one of the
// client's per-call policies.
type Policy struct{}

// Do implements [policy.Policy].
func (Policy) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	list, ok := req.Raw().Context().Value(key{}).(*List)
	if !ok || err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := runtime.Payload(resp)
	if err != nil {
		return resp, err
	}
	if list.Messages, list.Decoded = decode(body); list.Decoded {
		resp.Body = http.NoBody // the SDK decodes nothing then
	}
	return resp, nil
}
