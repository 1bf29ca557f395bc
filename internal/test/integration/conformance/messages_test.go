package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

var messageCases = []testCase{
	{fact: "MessageTextRoundTrip", check: textRoundTrip},
	{fact: "EmptyQueueGivesNoMessages", check: emptyQueue},
	{fact: "DequeueGivesEachMessageOnce", check: dequeueOnce},
	{fact: "DequeueCountsFromOne", check: dequeueCount},
	{fact: "PeekChangesNothing", check: peekChangesNothing},
	{fact: "PutReturnsAReceiptThatIsGood", check: putReceipt},
	{fact: "UpdateChangesTheReceipt", check: updateChangesReceipt},
	{fact: "UpdateReplacesTheText", check: updateReplacesText},
	{fact: "UpdateWithoutVisibilityReleasesTheMessage", check: updateReleases},
	{fact: "StaleReceiptIsRefusedAfterAnotherDequeue", check: staleReceipt},
	{fact: "DeletedMessageIs404", check: deletedMessage},
	{fact: "TimeToLiveMinusOneNeverExpires", check: ttlNever},
	{fact: "TimeToLiveDefaultsToSevenDays", check: ttlDefault},
	{fact: "EveryReplyHasADate", check: repliesHaveDate},
}

// put adds a message that does not expire.
func put(t *testing.T, q *azqueue.QueueClient, text string) *azqueue.EnqueuedMessage {
	t.Helper()
	res := must(q.EnqueueMessage(t.Context(), text, &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))}))(t, "EnqueueMessage")
	return res.Messages[0]
}

// takeFor dequeues up to n messages for some seconds.
func takeFor(t *testing.T, q *azqueue.QueueClient, n, visibility int32) []*azqueue.DequeuedMessage {
	t.Helper()
	return must(q.DequeueMessages(t.Context(),
		&azqueue.DequeueMessagesOptions{NumberOfMessages: &n, VisibilityTimeout: &visibility}))(t, "DequeueMessages").Messages
}

// take dequeues n messages for a minute, and stops the case if there are
// fewer.
func take(t *testing.T, q *azqueue.QueueClient, n int32) []*azqueue.DequeuedMessage {
	t.Helper()
	got := takeFor(t, q, n, 60)
	if len(got) != int(n) {
		t.Fatalf("DequeueMessages gave %d messages, want %d", len(got), n)
	}
	return got
}

func textRoundTrip(t *testing.T, e *env) {
	q := e.queue(t)
	for _, text := range []string{
		"plain", `{"v":1,"kind":"a & b <c> 'd'"}`, "eyJ2IjoxfQ==", "zażółć 😀", " spaces at both ends ", "two\nlines\tand a tab", "a\r\nb",
	} {
		put(t, q, text)
		m := take(t, q, 1)[0]
		if *m.MessageText != text {
			t.Errorf("text = %q, want %q", *m.MessageText, text)
		}
	}
}

func emptyQueue(t *testing.T, e *env) {
	if got := takeFor(t, e.queue(t), 32, 30); len(got) != 0 {
		t.Errorf("dequeue from an empty queue gave %d messages, want 0", len(got))
	}
}

func dequeueOnce(t *testing.T, e *env) {
	const total = 100
	q := e.queue(t)
	for i := range total {
		put(t, q, fmt.Sprint(i))
	}
	seen := make(map[string]bool)
	for {
		got := takeFor(t, q, 32, 300)
		if len(got) == 0 {
			break
		}
		for _, m := range got {
			if seen[*m.MessageText] {
				t.Errorf("message %s was given twice", *m.MessageText)
			}
			seen[*m.MessageText] = true
		}
	}
	if len(seen) != total {
		t.Errorf("dequeued %d messages, want %d", len(seen), total)
	}
}

func dequeueCount(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	for want := int64(1); want <= 3; want++ {
		m := take(t, q, 1)[0]
		if *m.DequeueCount != want {
			t.Errorf("dequeue count = %d, want %d", *m.DequeueCount, want)
		}
		release(t, q, m)
	}
}

// release makes a message visible at once.
func release(t *testing.T, q *azqueue.QueueClient, m *azqueue.DequeuedMessage) {
	t.Helper()
	must(q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, *m.MessageText, nil))(t, "UpdateMessage")
}

func peekChangesNothing(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	for range 2 {
		peeked := must(q.PeekMessages(t.Context(),
			&azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(32))}))(t, "PeekMessages")
		if len(peeked.Messages) != 1 || *peeked.Messages[0].MessageText != "text" {
			t.Fatalf("peeked %d messages, want the one that is there", len(peeked.Messages))
		}
	}
	if got := *take(t, q, 1)[0].DequeueCount; got != 1 {
		t.Errorf("dequeue count after peeks = %d, want 1", got)
	}
	peeked := must(q.PeekMessages(t.Context(), nil))(t, "PeekMessages")
	if len(peeked.Messages) != 0 {
		t.Errorf("peek sees %d invisible messages, want 0", len(peeked.Messages))
	}
}

func putReceipt(t *testing.T, e *env) {
	q := e.queue(t)
	m := put(t, q, "text")
	if _, err := q.DeleteMessage(t.Context(), *m.MessageID, *m.PopReceipt, nil); err != nil {
		t.Errorf("DeleteMessage with the receipt of the put = %v, want success", err)
	}
}

func updateChangesReceipt(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := take(t, q, 1)[0]
	e.pass(2 * time.Millisecond) // Azurite's receipts are made of the time
	updated := update(t, q, m, "text", 60)
	if *updated.PopReceipt == *m.PopReceipt {
		t.Fatalf("the receipt is the same after UpdateMessage, want another")
	}
	_, err := q.DeleteMessage(t.Context(), *m.MessageID, *m.PopReceipt, nil)
	wantRefused(t, err, 400, "PopReceiptMismatch", "DeleteMessage with the receipt before the update")
	if _, err := q.DeleteMessage(t.Context(), *m.MessageID, *updated.PopReceipt, nil); err != nil {
		t.Errorf("DeleteMessage with the new receipt = %v, want success", err)
	}
}

// update renews a message.
func update(t *testing.T, q *azqueue.QueueClient, m *azqueue.DequeuedMessage, text string, visibility int32) azqueue.UpdateMessageResponse {
	t.Helper()
	return must(q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, text,
		&azqueue.UpdateMessageOptions{VisibilityTimeout: &visibility}))(t, "UpdateMessage")
}

func updateReplacesText(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "before")
	update(t, q, take(t, q, 1)[0], "after", 0)
	if got := *take(t, q, 1)[0].MessageText; got != "after" {
		t.Errorf("text = %q, want %q", got, "after")
	}
}

func updateReleases(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := take(t, q, 1)[0]
	must(q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, "text", nil))(t, "UpdateMessage")
	if got := takeFor(t, q, 1, 60); len(got) != 1 {
		t.Errorf("the SDK's UpdateMessage without options leaves %d visible messages, want 1: it sends visibility 0", len(got))
	}
}

func staleReceipt(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	first := take(t, q, 1)[0]
	e.pass(2 * time.Millisecond)
	update(t, q, first, "text", 0)
	e.pass(2 * time.Millisecond)
	take(t, q, 1)
	_, err := q.UpdateMessage(t.Context(), *first.MessageID, *first.PopReceipt, "stale", nil)
	if status, code := refusal(err); code != "PopReceiptMismatch" && code != "MessageNotFound" {
		t.Errorf("UpdateMessage with a stale receipt = %d %s, want 400 PopReceiptMismatch or 404 MessageNotFound", status, code)
	}
	_, err = q.DeleteMessage(t.Context(), *first.MessageID, *first.PopReceipt, nil)
	if status, code := refusal(err); code != "PopReceiptMismatch" && code != "MessageNotFound" {
		t.Errorf("DeleteMessage with a stale receipt = %d %s, want 400 PopReceiptMismatch or 404 MessageNotFound", status, code)
	}
}

func deletedMessage(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := take(t, q, 1)[0]
	must(q.DeleteMessage(t.Context(), *m.MessageID, *m.PopReceipt, nil))(t, "DeleteMessage")
	_, err := q.DeleteMessage(t.Context(), *m.MessageID, *m.PopReceipt, nil)
	wantRefused(t, err, 404, "MessageNotFound", "DeleteMessage again")
	_, err = q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, "text", nil)
	wantRefused(t, err, 404, "MessageNotFound", "UpdateMessage after DeleteMessage")
}

func ttlNever(t *testing.T, e *env) {
	if got := put(t, e.queue(t), "text").ExpirationTime.Year(); got != 9999 {
		t.Errorf("a message with time to live -1 expires in %d, want 9999", got)
	}
}

func ttlDefault(t *testing.T, e *env) {
	q := e.queue(t)
	m := must(q.EnqueueMessage(t.Context(), "text", nil))(t, "EnqueueMessage").Messages[0]
	if got, want := m.ExpirationTime.Sub(*m.InsertionTime), 7*24*time.Hour; got != want {
		t.Errorf("time to live by default = %s, want %s", got, want)
	}
}

func repliesHaveDate(t *testing.T, e *env) {
	q := e.queue(t)
	ctx, reply := withReply(t.Context())
	must(q.EnqueueMessage(ctx, strings.Repeat("x", 10), nil))(t, "EnqueueMessage")
	date, err := time.Parse(time.RFC1123, reply().header.Get("Date"))
	if err != nil {
		t.Fatalf("Date: %v", err)
	}
	if skew := time.Since(date).Abs(); skew > time.Minute {
		t.Errorf("Date is %s off, want the service's clock", skew)
	}
	if reply().header.Get("x-ms-request-id") == "" {
		t.Errorf("no x-ms-request-id in the reply")
	}
}
