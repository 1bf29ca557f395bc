package conformance

import (
	"encoding/base64"
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
	_, err := q.EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(10)),
		VisibilityTimeout: new(int32(10))})
	wantRefused(t, err, 400, "InvalidQueryParameterValue", "EnqueueMessage that expires when it becomes visible")
	if _, err := q.EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1)),
		VisibilityTimeout: new(int32(10))}); err != nil {
		t.Errorf("EnqueueMessage that is delayed and never expires = %v, want success", err)
	}
}

func ttlZero(t *testing.T, e *env) {
	_, err := e.queue(t).EnqueueMessage(t.Context(), "text", &azqueue.EnqueueMessageOptions{TimeToLive: new(int32(0))})
	wantRefused(t, err, 400, "InvalidQueryParameterValue", "EnqueueMessage with time to live 0")
}

var nameCases = []testCase{
	{fact: "ContainerNameRules", check: containerNames},
	{fact: "QueueNameRules", check: queueNames},
	{fact: "BlobNamesSurviveAsWritten", check: blobNames},
	{fact: "BlobNamesThatWouldChangeAreRefused", check: blobNamesRefused},
}

// badNames cannot name a queue or a container.
var badNames = map[string]string{
	"ab":                    "OutOfRangeInput",
	strings.Repeat("a", 64): "OutOfRangeInput",
	"Upper":                 "InvalidResourceName",
	"double--hyphen":        "InvalidResourceName",
	"hyphen-":               "InvalidResourceName",
	"under_score":           "InvalidResourceName",
}

func containerNames(t *testing.T, e *env) {
	for name, code := range badNames {
		_, err := e.blobs.CreateContainer(t.Context(), name, nil)
		wantRefused(t, err, 400, code, "CreateContainer "+name)
	}
}

func queueNames(t *testing.T, e *env) {
	for name, code := range badNames {
		_, err := e.queues.CreateQueue(t.Context(), name, nil)
		wantRefused(t, err, 400, code, "CreateQueue "+name)
	}
}

func blobNames(t *testing.T, e *env) {
	c := e.container(t)
	for _, name := range []string{
		"plain", "with/slash", "with space", "percent%20", "plus+plus", "question?mark", "hash#mark", "a&b=c",
		"zażółć", "tilde~", "dot.in.the.middle", ".leading", "colon:", "Case", "case", "UTC-2026-11-21T10:00:00Z",
	} {
		must(c.NewBlockBlobClient(name).Upload(t.Context(), body(name), nil))(t, "Upload of "+name)
		if got := download(t, c.NewBlockBlobClient(name)); got != name {
			t.Errorf("blob %q = %q, want its name", name, got)
		}
		names, _ := listAll(t, c, nil)
		if len(names) != 1 || names[0] != name {
			t.Errorf("listed %q, want %q", names, name)
		}
		must(c.NewBlobClient(name).Delete(t.Context(), nil))(t, "Delete of "+name)
	}
}

func blobNamesRefused(t *testing.T, e *env) {
	c := e.container(t)
	for _, name := range []string{`back\slash`, "a/../b", "./a", "trailing."} {
		_, err := c.NewBlockBlobClient(name).Upload(t.Context(), body("text"), nil)
		e.wantStrict(t, namesAsWritten, err, 400, "InvalidResourceName", "Upload of "+name)
	}
	_, err := c.NewBlockBlobClient(strings.Repeat("x", 1025)).Upload(t.Context(), body("text"), nil)
	e.wantStrict(t, blobNameLength, err, 400, "", "Upload of a name with 1,025 characters")
}

var keyCases = []testCase{
	{fact: "WrongKeyIs403", check: wrongKey},
	{fact: "UnknownAccountIsRefused", check: unknownAccount},
}

// withSetting is the connection string with one setting replaced.
func withSetting(connectionString, name, value string) string {
	settings := strings.Split(strings.TrimRight(connectionString, ";"), ";")
	for i, s := range settings {
		if strings.HasPrefix(s, name+"=") {
			settings[i] = name + "=" + value
		}
	}
	return strings.Join(settings, ";") + ";"
}

// wantForbidden demands 403 of both services.
func wantForbidden(t *testing.T, e *env, who string) {
	t.Helper()
	_, err := e.queues.CreateQueue(t.Context(), uniqueName(), nil)
	wantRefused(t, err, 403, "", "CreateQueue with "+who)
	_, err = e.blobs.CreateContainer(t.Context(), uniqueName(), nil)
	wantRefused(t, err, 403, "", "CreateContainer with "+who)
	_, err = e.blobs.ServiceClient().NewContainerClient(uniqueName()).NewBlockBlobClient("blob").Upload(t.Context(), body("text"), nil)
	wantRefused(t, err, 403, "", "Upload with "+who)
	_, err = e.blobs.ServiceClient().NewContainerClient(uniqueName()).NewBlobClient("blob").GetProperties(t.Context(), nil)
	wantRefused(t, err, 403, "", "GetProperties with "+who)
}

func wrongKey(t *testing.T, e *env) {
	forged := e.target
	forged.connectionString = withSetting(e.target.connectionString, "AccountKey", base64.StdEncoding.EncodeToString([]byte("another key")))
	wantForbidden(t, newEnv(t, forged), "another key")
}

func unknownAccount(t *testing.T, e *env) {
	forged := e.target
	forged.connectionString = withSetting(e.target.connectionString, "AccountName", "somebodyelse")
	wantForbidden(t, newEnv(t, forged), "another account's name")
}
