package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestLoopDoesTheJobs: the loop leaves a record of each message and no message, and
// makes 2 + 1/32 calls a job.
func TestLoopDoesTheJobs(t *testing.T) {
	server := storage.New(storage.Options{})
	connectionString, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const jobs = 3 * claimed
	fill(t, connectionString, jobs)
	server.ResetCounts()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Loop{ConnectionString: connectionString, Queue: "jobs", Records: "records", Slots: 4}.Run(ctx)
	}()
	for len(server.Messages("jobs")) > 0 && ctx.Err() == nil && len(done) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("loop = %v, want it to run until it is cancelled", err)
	}
	counts := server.Counts()
	if records := len(server.Blobs("records")); records != jobs || counts[storage.OpPutBlob] != jobs ||
		counts[storage.OpDeleteMessage] != jobs {
		t.Errorf("%d records, calls %v, want %d of each", records, counts, jobs)
	}
	if counts[storage.OpGetMessages] < jobs/claimed {
		t.Errorf("claims = %d, want at least %d", counts[storage.OpGetMessages], jobs/claimed)
	}
}

func fill(t *testing.T, connectionString string, jobs int) {
	t.Helper()
	records, err := container.NewClientFromConnectionString(connectionString, "records", nil)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := azqueue.NewQueueClientFromConnectionString(connectionString, "jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := records.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if _, err := queue.EnqueueMessage(t.Context(), fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
}
