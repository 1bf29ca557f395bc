package storage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// BenchmarkMessage is one message's way through the SDK, the in-process
// transport and the queue.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{1 << 10, 48 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			a := setup(b, Options{})
			body := strings.Repeat("x", size)
			for b.Loop() {
				if _, err := a.queue.EnqueueMessage(b.Context(), body, nil); err != nil {
					b.Fatal(err)
				}
				got, err := a.queue.DequeueMessages(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				m := got.Messages[0]
				if _, err := a.queue.DeleteMessage(b.Context(), *m.MessageID, *m.PopReceipt, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDequeue32 is a full batch, put back at once.
func BenchmarkDequeue32(b *testing.B) {
	a := setup(b, Options{})
	for range 32 {
		if _, err := a.queue.EnqueueMessage(b.Context(), strings.Repeat("x", 1<<10), nil); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		got, err := a.queue.DequeueMessages(b.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(32))})
		if err != nil || len(got.Messages) != 32 {
			b.Fatalf("got %d messages, %v", len(got.Messages), err)
		}
		b.StopTimer()
		for _, m := range got.Messages {
			if _, err := a.queue.UpdateMessage(b.Context(), *m.MessageID, *m.PopReceipt, *m.MessageText,
				&azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(0))}); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
}

// BenchmarkBlob is put, get and delete of a small blob through the SDK.
func BenchmarkBlob(b *testing.B) {
	a := setup(b, Options{})
	blob := a.blob("jobs/abc/1")
	for b.Loop() {
		if _, err := blob.Upload(b.Context(), text("state"), nil); err != nil {
			b.Fatal(err)
		}
		res, err := blob.DownloadStream(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
		if _, err := blob.Delete(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
