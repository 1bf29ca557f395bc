package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// env gives a case its clients.
type env struct {
	target Target
	queues *azqueue.ServiceClient
	blobs  *azblob.Client
}

// newEnv connects to the target. Nothing is retried, so that a case sees the
// first answer.
func newEnv(t *testing.T, tg Target) *env {
	t.Helper()
	options := policy.ClientOptions{
		Transport: tg.Transport,
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}
	queues, err := azqueue.NewServiceClientFromConnectionString(tg.ConnectionString, &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatalf("queue client: %v", err)
	}
	blobs, err := azblob.NewClientFromConnectionString(tg.ConnectionString, &azblob.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatalf("blob client: %v", err)
	}
	return &env{target: tg, queues: queues, blobs: blobs}
}

// uniqueName is a name that no other case uses.
func uniqueName() string { return "c" + strings.ToLower(rand.Text()) }

// queue makes a queue of the case's own.
func (e *env) queue(t *testing.T) *azqueue.QueueClient {
	t.Helper()
	q := e.queues.NewQueueClient(uniqueName())
	if _, err := q.Create(t.Context(), nil); err != nil {
		t.Fatalf("Create queue: %v", err)
	}
	return q
}

// container makes a container of the case's own.
func (e *env) container(t *testing.T) *container.Client {
	t.Helper()
	c := e.blobs.ServiceClient().NewContainerClient(uniqueName())
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatalf("Create container: %v", err)
	}
	return c
}

// blob names a blob in a container of the case's own.
func (e *env) blob(t *testing.T) *blockblob.Client {
	t.Helper()
	return e.container(t).NewBlockBlobClient("blob")
}

// pass lets time pass.
func (e *env) pass(d time.Duration) { time.Sleep(d) }

// body makes a request body.
func body(text string) io.ReadSeekCloser { return streaming.NopCloser(strings.NewReader(text)) }

// refusal returns status and code of a refused call, or 0.
func refusal(err error) (status int, code string) {
	if re, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return re.StatusCode, re.ErrorCode
	}
	return 0, ""
}

// wantRefused demands a refusal with this status and, unless empty, this code.
func wantRefused(t *testing.T, err error, status int, code, doing string) {
	t.Helper()
	gotStatus, gotCode := refusal(err)
	if gotStatus != status || (code != "" && gotCode != code) {
		t.Errorf("%s = %d %s (%v), want %d %s", doing, gotStatus, gotCode, firstLine(err), status, code)
	}
}

func firstLine(err error) string {
	if err == nil {
		return "no error"
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// must stops a case where a call that it only needs for its preparation, or
// that is not its point, fails: must(call())(t, "what was called").
func must[T any](v T, err error) func(t *testing.T, doing string) T {
	return func(t *testing.T, doing string) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
		return v
	}
}

// httpReply is what the SDK's types do not show of a reply.
type httpReply struct {
	status int
	header http.Header
}

// withReply makes a context under which the SDK keeps the last call's reply.
func withReply(ctx context.Context) (context.Context, func() httpReply) {
	var res *http.Response
	return policy.WithCaptureResponse(ctx, &res), func() httpReply {
		return httpReply{status: res.StatusCode, header: res.Header}
	}
}
