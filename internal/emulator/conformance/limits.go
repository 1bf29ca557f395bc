package conformance

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

var limitCases = []testCase{
	{fact: "MessageOf64KiBIsTaken", check: largestMessage},
	{fact: "MessageOver64KiBIs413", check: messageTooLarge},
	{fact: "DequeueTakes1To32", check: dequeueLimits},
	{fact: "DequeueVisibilityIs1SecondTo7Days", check: dequeueVisibilityLimits},
	{fact: "UpdateVisibilityIs0To7Days", check: updateVisibilityLimits},
	{fact: "PutDelayMustEndBeforeTheMessageDoes", check: putDelayWithinTTL},
	{fact: "TimeToLiveZeroIsRefused", check: ttlZero},
}

const (
	maxText = 64 << 10
	week    = 7 * 24 * 60 * 60 // seconds
)

func largestMessage(t *testing.T, e *env) {
	q := e.queue(t)
	text := strings.Repeat("x", maxText)
	put(t, q, text)
	if got := *take(t, q, 1)[0].MessageText; got != text {
		t.Errorf("got %d bytes back, want the %d that were put", len(got), len(text))
	}
}

func messageTooLarge(t *testing.T, e *env) {
	q := e.queue(t)
	_, err := q.EnqueueMessage(t.Context(), strings.Repeat("x", maxText+1), nil)
	wantRefused(t, err, 413, "RequestBodyTooLarge", "EnqueueMessage of 64 KiB and a byte")
	put(t, q, "text")
	m := take(t, q, 1)[0]
	_, err = q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, strings.Repeat("x", maxText+1), nil)
	wantRefused(t, err, 413, "RequestBodyTooLarge", "UpdateMessage to 64 KiB and a byte")
}

func dequeueLimits(t *testing.T, e *env) {
	q := e.queue(t)
	for _, n := range []int32{0, 33} {
		_, err := q.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: &n})
		wantRefused(t, err, 400, "", "DequeueMessages of 0 or 33")
		_, err = q.PeekMessages(t.Context(), &azqueue.PeekMessagesOptions{NumberOfMessages: &n})
		wantRefused(t, err, 400, "", "PeekMessages of 0 or 33")
	}
}

func dequeueVisibilityLimits(t *testing.T, e *env) {
	q := e.queue(t)
	for _, v := range []int32{0, week + 1} {
		_, err := q.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{VisibilityTimeout: &v})
		wantRefused(t, err, 400, "OutOfRangeQueryParameterValue", "DequeueMessages for no time or over a week")
	}
	for _, v := range []int32{1, week} {
		if _, err := q.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{VisibilityTimeout: &v}); err != nil {
			t.Errorf("DequeueMessages for %d s = %v, want success", v, err)
		}
	}
}

func updateVisibilityLimits(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := take(t, q, 1)[0]
	for _, v := range []int32{-1, week + 1} {
		_, err := q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, "text", &azqueue.UpdateMessageOptions{VisibilityTimeout: &v})
		wantRefused(t, err, 400, "OutOfRangeQueryParameterValue", "UpdateMessage for -1 s or over a week")
	}
	update(t, q, m, "text", week)
}

func putDelayWithinTTL(t *testing.T, e *env) {
	q := e.queue(t)
	_, err := q.EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(10)), VisibilityTimeout: new(int32(10))})
	wantRefused(t, err, 400, "InvalidQueryParameterValue", "EnqueueMessage that expires when it becomes visible")
	if _, err := q.EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1)), VisibilityTimeout: new(int32(10))}); err != nil {
		t.Errorf("EnqueueMessage that is delayed and never expires = %v, want success", err)
	}
}

func ttlZero(t *testing.T, e *env) {
	_, err := e.queue(t).EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(0))})
	wantRefused(t, err, 400, "InvalidQueryParameterValue", "EnqueueMessage with time to live 0")
}
