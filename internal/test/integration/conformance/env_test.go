package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
	target target
	queues *azqueue.ServiceClient
	blobs  *azblob.Client
}

// newEnv connects to the target. Nothing is retried, so that a case sees the
// first answer.
func newEnv(t *testing.T, tg target) *env {
	t.Helper()
	options := policy.ClientOptions{
		Transport: tg.transport,
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}
	queues, err := azqueue.NewServiceClientFromConnectionString(tg.connectionString, &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatalf("queue client: %v", err)
	}
	blobs, err := azblob.NewClientFromConnectionString(tg.connectionString, &azblob.ClientOptions{ClientOptions: options})
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

// httpReply has the parts of a reply that the SDK's types do not show.
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

// clock says how a case gets time to pass.
type clock int

const (
	// noTime leaves out the cases that must wait.
	noTime clock = iota
	// virtualTime runs every case in a testing/synctest bubble. The target
	// must be in process, since nothing in a bubble may wait for a socket.
	virtualTime
	// realTime makes the cases wait, for a second or two each.
	realTime
)

// target is a storage account to run the suite on.
type target struct {
	// connectionString holds the account's name, key and endpoints. Required.
	connectionString string
	// transport replaces the SDK's HTTP client. Default: the SDK's own.
	transport policy.Transporter
	// clock says how time passes. Default: noTime.
	clock clock
	// lax lists where the target is known to accept more than Azure.
	lax []laxity
}

// laxity names a fact of Azure that a target is known not to hold.
type laxity string

// try executes one case the way the target's clock asks for.
func (tg target) try(t *testing.T, c testCase) {
	e := newEnv(t, tg)
	switch {
	case tg.clock == virtualTime:
		synctest.Test(t, func(t *testing.T) { c.check(t, e) })
	case c.waits:
		t.Parallel()
		c.check(t, e)
	default:
		c.check(t, e)
	}
}

// run checks every fact of the suite on the target.
func run(t *testing.T, tg target) {
	t.Helper()
	for _, group := range [][]testCase{
		queueCases, messageCases, limitCases, visibilityCases,
		containerCases, conditionCases, leaseCases, readCases, rangeCases, blockCases, metadataCases, listCases, nameCases, raceCases, keyCases,
	} {
		for _, c := range group {
			if c.waits && tg.clock == noTime {
				continue
			}
			t.Run(c.fact, func(t *testing.T) { tg.try(t, c) })
		}
	}
}

// testCase is one fact and how to check it.
type testCase struct {
	fact  string // the names that cases are named after
	waits bool   // needs time to pass
	check func(t *testing.T, e *env)
}

// Places where Azurite 3.37.0 accepts more than Azure, each with the known facts.
const (
	// metadataEmptyValues: Azure refuses a metadata value that is empty;
	// Azurite takes it.
	metadataEmptyValues laxity = "empty metadata values are taken"
	// metadataUnlimited: Azure refuses more than 8 KiB in all; Azurite has no limit but its
	// HTTP server's.
	metadataUnlimited laxity = "the size of metadata is not limited"
	// namesAsWritten: a backslash or a dot segment does not reach Azure as
	// written; our emulator refuses such a name where Azurite, like Azure,
	// silently takes it for another one.
	namesAsWritten laxity = "names that do not survive the trip are taken for others"
	// blobNameLength: Azure's blob names have at most 1,024 characters; Azurite has no
	// limit but its HTTP server's.
	blobNameLength laxity = "the length of blob names is not limited"
	// putBlobKeepsStaged: Put Blob discards staged blocks ("Put Block", remarks); Azurite
	// keeps them.
	putBlobKeepsStaged laxity = "Put Blob keeps staged blocks"
	// committedBlockIDLength: all block ids of a blob have one length ("Put
	// Block", URI parameters); Azurite compares with staged blocks only.
	committedBlockIDLength laxity = "a staged block's id may differ in length from committed ones"
	// rangeAtTheEnd: a range that begins at a blob's length has no byte in
	// the blob; Azurite serves it as an empty one.
	rangeAtTheEnd laxity = "a range may begin at the end of the blob"
	// uncommittedDelete: a blob without a committed version is not found;
	// Azurite deletes it.
	uncommittedDelete laxity = "a blob that was never committed can be deleted"
)

// lax reports whether the target is known to be lax in this.
func (e *env) lax(l laxity) bool {
	return slices.Contains(e.target.lax, l)
}

// wantStrict demands the refusal of a strict target and a success of a target that is
// known to be lax.
func (e *env) wantStrict(t *testing.T, l laxity, err error, status int, code, doing string) {
	t.Helper()
	if !e.lax(l) {
		wantRefused(t, err, status, code, doing)
		return
	}
	if err != nil {
		t.Errorf("%s = %v, want success on a target known to be lax (%s): take it off the list", doing, err, l)
	}
}
