package storage

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
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
