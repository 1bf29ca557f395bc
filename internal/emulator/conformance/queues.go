package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

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
		if _, err := e.queues.CreateQueue(t.Context(), name, &azqueue.CreateOptions{Metadata: map[string]*string{"n": new(fmt.Sprint(i))}}); err != nil {
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
