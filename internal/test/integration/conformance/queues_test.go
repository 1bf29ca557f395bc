package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

var queueCases = []testCase{
	{fact: "CreateQueueAgainWithTheSameMetadataIs204", check: createQueueAgain},
	{fact: "CreateQueueAgainWithOtherMetadataIs409", check: createQueueOtherMetadata},
	{fact: "QueueMetadataRoundTrip", check: queueMetadata},
	{fact: "QueueCountIncludesInvisibleMessages", check: queueCount},
	{fact: "MissingQueueIs404", check: missingQueue},
	{fact: "DeletedQueueIsGone", check: deletedQueue},
	{fact: "ListQueuesPagesByPrefix", check: listQueues},
	{fact: "ClearRemovesAllMessages", check: clearMessages},
}

func createQueueAgain(t *testing.T, e *env) {
	q := e.queue(t)
	ctx, reply := withReply(t.Context())
	if _, err := q.Create(ctx, nil); err != nil {
		t.Fatalf("Create again = %v, want success", err)
	}
	if got := reply().status; got != http.StatusNoContent {
		t.Errorf("Create again: status = %d, want 204", got)
	}
}

func createQueueOtherMetadata(t *testing.T, e *env) {
	q := e.queue(t)
	_, err := q.Create(t.Context(), &azqueue.CreateOptions{Metadata: map[string]*string{"kind": new("other")}})
	wantRefused(t, err, 409, "QueueAlreadyExists", "Create with other metadata")
}

func queueMetadata(t *testing.T, e *env) {
	q := e.queue(t)
	if _, err := q.SetMetadata(t.Context(), &azqueue.SetMetadataOptions{Metadata: map[string]*string{"kind": new("jobs")}}); err != nil {
		t.Fatalf("SetMetadata: %v", err)
	}
	props := must(q.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{"kind": "jobs"})
}

func queueCount(t *testing.T, e *env) {
	q := e.queue(t)
	for i := range 3 {
		put(t, q, fmt.Sprint(i))
	}
	take(t, q, 2)
	props := must(q.GetProperties(t.Context(), nil))(t, "GetProperties")
	if got := *props.ApproximateMessagesCount; got != 3 {
		t.Errorf("count with two of three messages invisible = %d, want 3", got)
	}
}

func missingQueue(t *testing.T, e *env) {
	q := e.queues.NewQueueClient(uniqueName())
	_, err := q.EnqueueMessage(t.Context(), "text", nil)
	wantRefused(t, err, 404, "QueueNotFound", "EnqueueMessage")
	_, err = q.DequeueMessages(t.Context(), nil)
	wantRefused(t, err, 404, "QueueNotFound", "DequeueMessages")
	_, err = q.GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "QueueNotFound", "GetProperties")
}

func deletedQueue(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	if _, err := q.Delete(t.Context(), nil); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	_, err := q.PeekMessages(t.Context(), nil)
	wantRefused(t, err, 404, "QueueNotFound", "PeekMessages after Delete")
}

func listQueues(t *testing.T, e *env) {
	prefix := uniqueName()
	var want []string
	for i := range 5 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if _, err := e.queues.CreateQueue(t.Context(), name,
			&azqueue.CreateOptions{Metadata: map[string]*string{"n": new(fmt.Sprint(i))}}); err != nil {
			t.Fatalf("CreateQueue: %v", err)
		}
		want = append(want, name)
	}
	pager := e.queues.NewListQueuesPager(&azqueue.ListQueuesOptions{
		Prefix: &prefix, MaxResults: new(int32(2)), Include: azqueue.ListQueuesInclude{Metadata: true},
	})
	var got []string
	pages := 0
	for ; pager.More(); pages++ {
		page := must(pager.NextPage(t.Context()))(t, "list queues")
		for _, q := range page.Queues {
			wantMetadata(t, q.Metadata, map[string]string{"n": fmt.Sprint(len(got))})
			got = append(got, *q.Name)
		}
	}
	if !slices.Equal(got, want) || pages < 3 {
		t.Errorf("listed %q in %d pages, want %q in at least 3", got, pages, want)
	}
}

func clearMessages(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "one")
	put(t, q, "two")
	take(t, q, 1)
	if _, err := q.ClearMessages(t.Context(), nil); err != nil {
		t.Fatalf("ClearMessages: %v", err)
	}
	props := must(q.GetProperties(t.Context(), nil))(t, "GetProperties")
	if got := *props.ApproximateMessagesCount; got != 0 {
		t.Errorf("count after clear = %d, want 0", got)
	}
}

var visibilityCases = []testCase{
	{fact: "DequeueHidesUntilVisibilityRunsOut", waits: true, check: dequeueHides},
	{fact: "ReceiptStaysGoodAfterVisibilityRanOut", waits: true, check: receiptOutlivesVisibility},
	{fact: "ReceiptIsStaleOnceSomebodyElseDequeued", waits: true, check: receiptAfterTakeover},
	{fact: "UpdateExtendsVisibility", waits: true, check: updateExtends},
	{fact: "PutMayDelayAMessage", waits: true, check: putDelays},
	{fact: "MessageExpires", waits: true, check: messageExpires},
	{fact: "DequeueDoesNotExtendTimeToLive", waits: true, check: dequeueKeepsTTL},
}

// tick is a little longer than the shortest visibility.
const tick = 1200 * time.Millisecond

func dequeueHides(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	takeFor(t, q, 1, 1)
	if got := takeFor(t, q, 1, 1); len(got) != 0 {
		t.Fatalf("dequeued %d messages while the only one is hidden, want 0", len(got))
	}
	e.pass(tick)
	got := takeFor(t, q, 1, 1)
	if len(got) != 1 || *got[0].DequeueCount != 2 {
		t.Errorf("dequeued %d messages after the visibility ran out, want 1 with count 2", len(got))
	}
}

func receiptOutlivesVisibility(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := takeFor(t, q, 1, 1)[0]
	e.pass(tick)
	updated := update(t, q, m, "text", 1)
	e.pass(tick)
	if _, err := q.DeleteMessage(t.Context(), *m.MessageID, *updated.PopReceipt, nil); err != nil {
		t.Errorf("DeleteMessage after the visibility ran out = %v, want success: no other client has the message", err)
	}
}

func receiptAfterTakeover(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	first := takeFor(t, q, 1, 1)[0]
	e.pass(tick)
	second := take(t, q, 1)[0]
	_, err := q.DeleteMessage(t.Context(), *first.MessageID, *first.PopReceipt, nil)
	if status, code := refusal(err); code != "PopReceiptMismatch" && code != "MessageNotFound" {
		t.Errorf("DeleteMessage by the first holder = %d %s, want a refusal", status, code)
	}
	if _, err := q.DeleteMessage(t.Context(), *second.MessageID, *second.PopReceipt, nil); err != nil {
		t.Errorf("DeleteMessage by the second holder = %v, want success", err)
	}
}

func updateExtends(t *testing.T, e *env) {
	q := e.queue(t)
	put(t, q, "text")
	m := takeFor(t, q, 1, 1)[0]
	updated := update(t, q, m, "text", 60)
	e.pass(tick)
	if got := takeFor(t, q, 1, 1); len(got) != 0 {
		t.Errorf("dequeued %d messages, want 0: the message was renewed for 60 s", len(got))
	}
	if left := updated.TimeNextVisible.Sub(*updated.Date); left < 58*time.Second || left > 62*time.Second {
		t.Errorf("next visible %s after the reply's date, want about 60 s", left)
	}
}

func putDelays(t *testing.T, e *env) {
	q := e.queue(t)
	must(q.EnqueueMessage(t.Context(), "text",
		&azqueue.EnqueueMessageOptions{VisibilityTimeout: new(int32(1))}))(t, "EnqueueMessage")
	if got := takeFor(t, q, 1, 1); len(got) != 0 {
		t.Fatalf("dequeued %d messages before the delay is over, want 0", len(got))
	}
	e.pass(tick)
	if got := takeFor(t, q, 1, 1); len(got) != 1 {
		t.Errorf("dequeued %d messages after the delay, want 1", len(got))
	}
}

func messageExpires(t *testing.T, e *env) {
	q := e.queue(t)
	must(q.EnqueueMessage(t.Context(), "text",
		&azqueue.EnqueueMessageOptions{TimeToLive: new(int32(1))}))(t, "EnqueueMessage")
	put(t, q, "lasting")
	e.pass(tick)
	got := takeFor(t, q, 32, 60)
	if len(got) != 1 || *got[0].MessageText != "lasting" {
		t.Errorf("dequeued %d messages, want the one that does not expire", len(got))
	}
}

func dequeueKeepsTTL(t *testing.T, e *env) {
	q := e.queue(t)
	must(q.EnqueueMessage(t.Context(), "text",
		&azqueue.EnqueueMessageOptions{TimeToLive: new(int32(1))}))(t, "EnqueueMessage")
	m := take(t, q, 1)[0]
	e.pass(tick)
	_, err := q.UpdateMessage(t.Context(), *m.MessageID, *m.PopReceipt, "text", nil)
	wantRefused(t, err, 404, "MessageNotFound", "UpdateMessage of a message that expired in somebody's hands")
}
