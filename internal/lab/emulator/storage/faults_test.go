package storage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdkblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
)

// on makes a hook that faults one operation.
func on(operation string, f Fault) func(Call) Fault {
	return func(c Call) Fault {
		if c.Operation == operation {
			return f
		}
		return Fault{}
	}
}

func TestLatencyIsHalfBeforeAndHalfAfterTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{Latency: 20 * time.Millisecond})
		began := time.Now()
		var effect time.Duration
		a.OnResult(func(Result) { effect = time.Since(began) })
		if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); err != nil {
			t.Fatalf("EnqueueMessage: %v", err)
		}
		if got, want := time.Since(began), 20*time.Millisecond; got != want {
			t.Errorf("the call took %s, want %s", got, want)
		}
		if want := 10 * time.Millisecond; effect != want {
			t.Errorf("the effect came after %s, want %s", effect, want)
		}
	})
}

func TestCancelBeforeTheEffectHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		a.OnCall(on(queues.OpPutMessage, Fault{Before: time.Hour}))
		var results []Result
		a.OnResult(func(r Result) { results = append(results, r) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := a.queue.EnqueueMessage(ctx, "text", nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("EnqueueMessage = %v, want %v", err, context.DeadlineExceeded)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("it took %s, want 1s: the call ends with its context", got)
		}
		if got := a.texts(); len(got) != 0 {
			t.Errorf("messages = %q, want none", got)
		}
		if len(results) != 1 || results[0].Status != 0 {
			t.Errorf("results = %+v, want one with status 0", results)
		}
	})
}

func TestCancelAfterTheEffectLeavesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		a.OnCall(on(queues.OpPutMessage, Fault{After: time.Hour}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.queue.EnqueueMessage(ctx, "text", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("EnqueueMessage = %v, want %v", err, context.DeadlineExceeded)
		}
		if got, want := a.texts(), []string{"text"}; !cmp.Equal(got, want) {
			t.Errorf("messages = %q, want %q", got, want)
		}
	})
}

func TestCallUnderAnEndedContextIsNoCall(t *testing.T) {
	a := setup(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.queue.EnqueueMessage(ctx, "text", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("EnqueueMessage = %v, want %v", err, context.Canceled)
	}
	if got := a.Counts(); len(got) != 0 {
		t.Errorf("counts = %v, want none: nothing was sent", got)
	}
}

func TestDroppedRequestHasNoEffect(t *testing.T) {
	a := setup(t, Options{})
	a.OnCall(on(queues.OpPutMessage, Fault{DropRequest: true}))
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("EnqueueMessage = %v, want %v", err, syscall.ECONNRESET)
	}
	if got := a.texts(); len(got) != 0 {
		t.Errorf("messages = %q, want none", got)
	}
}

func TestDroppedReplyHasItsEffect(t *testing.T) {
	a := setup(t, Options{})
	a.OnCall(on(queues.OpPutMessage, Fault{DropReply: true}))
	var got Result
	a.OnResult(func(r Result) { got = r })
	if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("EnqueueMessage = %v, want %v", err, syscall.ECONNRESET)
	}
	if messages := a.Messages("jobs"); len(messages) != 1 || !cmp.Equal(got.MessageIDs, []string{messages[0].ID}) {
		t.Errorf("messages = %v and the result names %q, want one message, named", messages, got.MessageIDs)
	}
	if got.Status != 201 {
		t.Errorf("result's status = %d, want 201: the effect took place", got.Status)
	}
}

func TestRefusalIsRetriedByTheSDKAfterTheTimeItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		a := connect(t, s, s.ConnectionString(), policy.ClientOptions{Transport: s.Transport()})
		a.OnCall(func(c Call) Fault {
			if c.Operation == queues.OpPutMessage && a.Counts()[queues.OpPutMessage] == 1 {
				return Fault{Refuse: protocol.ServerBusy(6500 * time.Millisecond)}
			}
			return Fault{}
		})
		began := time.Now()
		if _, err := a.queue.EnqueueMessage(t.Context(), "text", nil); err != nil {
			t.Fatalf("EnqueueMessage = %v, want success at the second try", err)
		}
		if got := time.Since(began); got != 7*time.Second {
			t.Errorf("the SDK came back after %s, want the 7s of Retry-After", got)
		}
		if got := a.Counts()[queues.OpPutMessage]; got != 2 {
			t.Errorf("PutMessage was called %d times, want 2", got)
		}
		if got := a.texts(); len(got) != 1 {
			t.Errorf("messages = %q, want one: the refused call had no effect", got)
		}
	})
}

func TestRefusalReachesTheCaller(t *testing.T) {
	a := setup(t, Options{})
	a.OnCall(on(queues.OpPutMessage, Fault{Refuse: &protocol.Error{Status: 500, Code: "OperationTimedOut", Message: "too slow"}}))
	_, err := a.queue.EnqueueMessage(t.Context(), "text", nil)
	re, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || re.StatusCode != http.StatusInternalServerError || re.ErrorCode != "OperationTimedOut" {
		t.Errorf("EnqueueMessage = %v, want 500 OperationTimedOut", err)
	}
}

func TestHooksSeeEveryCallInOrder(t *testing.T) {
	a := setup(t, Options{})
	var calls []Call
	a.OnCall(func(c Call) Fault { calls = append(calls, c); return Fault{} })
	b := a.blob("jobs/1")
	put, err := b.Upload(t.Context(), text("0123456789"), nil)
	if err != nil {
		t.Fatalf("Upload: %v", err)
	}
	var served protocol.Range
	a.OnResult(func(r Result) { served = r.Served })
	res, err := b.DownloadStream(t.Context(), &sdkblob.DownloadStreamOptions{
		Range:            sdkblob.HTTPRange{Offset: 4, Count: 100},
		AccessConditions: &sdkblob.AccessConditions{ModifiedAccessConditions: &sdkblob.ModifiedAccessConditions{IfMatch: put.ETag}},
	})
	if err != nil {
		t.Fatalf("DownloadStream: %v", err)
	}
	if data, _ := io.ReadAll(res.Body); string(data) != "456789" {
		t.Errorf("read %q, want %q", data, "456789")
	}
	want := []Call{
		{Service: protocol.BlobService, Operation: blobs.OpPutBlob, Container: "records", Blob: "jobs/1", Size: 10},
		{Service: protocol.BlobService, Operation: blobs.OpGetBlob, Container: "records", Blob: "jobs/1",
			Range: &protocol.Range{Offset: 4, Count: 100}, IfMatch: string(*put.ETag)},
	}
	first := calls[0].N
	for i := range calls {
		if got, want := calls[i].N, first+int64(i); got != want {
			t.Errorf("call %d is number %d, want %d", i, got, want)
		}
		calls[i].N = 0
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if want := (protocol.Range{Offset: 4, Count: 6}); served != want {
		t.Errorf("served = %+v, want %+v", served, want)
	}
	if got, want := a.Counts(), map[string]int64{blobs.OpPutBlob: 1, blobs.OpGetBlob: 1}; !cmp.Equal(got, want) {
		t.Errorf("counts = %v, want %v", got, want)
	}
	a.OnCall(nil)
	a.ResetCounts()
	if got := a.Counts(); len(got) != 0 {
		t.Errorf("counts after ResetCounts = %v, want none", got)
	}
}

func TestBodyFailsOnceItsContextHasEnded(t *testing.T) {
	a := setup(t, Options{})
	if _, err := a.blob("b").Upload(t.Context(), text("0123456789"), nil); err != nil {
		t.Fatalf("Upload: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	res, err := a.blob("b").DownloadStream(ctx, nil)
	if err != nil {
		t.Fatalf("DownloadStream: %v", err)
	}
	cancel()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("reading after the context ended = %v, want %v", err, context.Canceled)
	}
}

func TestTransportRefusesOtherHosts(t *testing.T) {
	s := New(Options{})
	_, err := s.Transport().Do(httpRequest(t, "http://elsewhere.example/devstoreaccount1/jobs"))
	if err == nil {
		t.Errorf("a request to another host succeeded, want a failure: nothing must leave the process")
	}
}

// TestCutBody: the headers arrive, and nothing of the body: over a socket as in memory.
func TestCutBody(t *testing.T) {
	for name, a := range map[string]*fixture{"socket": setupHTTP(t), "memory": setup(t, Options{})} {
		if _, err := a.blobs.UploadBuffer(t.Context(), "records", "jobs/1", []byte("content"), nil); err != nil {
			t.Fatal(err)
		}
		a.OnCall(on(blobs.OpGetBlob, Fault{CutBody: true}))
		reply, err := a.blobs.DownloadStream(t.Context(), "records", "jobs/1", nil)
		if err != nil || *reply.ContentLength != 7 {
			t.Fatalf("%s: DownloadStream = %v, want headers", name, err)
		}
		if data, err := io.ReadAll(reply.Body); len(data) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the body is %q, %v, want nothing and %v", name, data, err, io.ErrUnexpectedEOF)
		}
		_ = reply.Body.Close()
	}
}

func TestSpoiledReplyCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := setup(t, Options{})
		for _, text := range []string{"one", "two"} {
			if _, err := a.queue.EnqueueMessage(t.Context(), text, nil); err != nil {
				t.Fatalf("EnqueueMessage: %v", err)
			}
		}
		asked := 0
		a.OnCall(on(queues.OpGetMessages, Fault{SpoilReply: func(r Result) bool { asked = len(r.MessageIDs); return true }}))
		_, err := a.queue.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(2))})
		var refused *azcore.ResponseError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("DequeueMessages = %v, want an error that is no answer of the service", err)
		}
		if asked != 2 {
			t.Errorf("the hook saw %d messages, want 2", asked)
		}
		for _, m := range a.Messages("jobs") {
			if m.Visible {
				t.Errorf("message %q is visible, want it hidden: the effect took place", m.Text)
			}
		}
	})
}
