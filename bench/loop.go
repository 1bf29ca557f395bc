//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"
)

// loopCommand makes the calls of short jobs with the Azure SDK and nothing else, until its process
// is killed: it claims 32 messages at a time, writes a record of each and deletes it. It renews
// nothing, retries no more than the SDK does, and knows no owner.
type loopCommand struct {
	Slots   int    `help:"Jobs at once."`
	Storage string `help:"Connection string."`
}

// claimed is how many messages a claim asks for.
const claimed = 32

// sdkOptions are those of the SDK as it comes, but for connections: by default it keeps ten of a host.
func sdkOptions(calls int) policy.ClientOptions {
	return policy.ClientOptions{Transport: &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, MaxIdleConns: 4 * calls, MaxIdleConnsPerHost: 2 * calls, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}}}
}

// Run works until a call fails.
func (c *loopCommand) Run(ctx context.Context) error {
	options := sdkOptions(c.Slots + claimed)
	queue, err := azqueue.NewQueueClientFromConnectionString(c.Storage, names().Queue, &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		return err
	}
	records, err := container.NewClientFromConnectionString(c.Storage, names().Records, &container.ClientOptions{ClientOptions: options})
	if err != nil {
		return err
	}
	messages := make(chan *azqueue.DequeuedMessage, claimed)
	group, ctx := errgroup.WithContext(ctx)
	// Enough claims in flight for all slots: a job takes two calls, a claim one.
	for range 1 + c.Slots/claimed {
		group.Go(func() error { return claimAll(ctx, queue, messages) })
	}
	for range c.Slots {
		group.Go(func() error { return doAll(ctx, queue, records, messages) })
	}
	return group.Wait()
}

// claimAll claims messages until ctx ends.
func claimAll(ctx context.Context, queue *azqueue.QueueClient, messages chan<- *azqueue.DequeuedMessage) error {
	for {
		got, err := queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(claimed)),
			VisibilityTimeout: new(int32(30))})
		if err != nil {
			return err
		}
		if len(got.Messages) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		for _, m := range got.Messages {
			select {
			case messages <- m:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// doAll does one job after the other until ctx ends.
func doAll(ctx context.Context, queue *azqueue.QueueClient, records *container.Client, messages <-chan *azqueue.DequeuedMessage) error {
	for {
		select {
		case m := <-messages:
			_, err := records.NewBlockBlobClient(*m.MessageID).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
				Metadata:         recordOf(*m.MessageID),
				AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}},
			})
			if err != nil {
				return err
			}
			if _, err := queue.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// recordOf is metadata as a worker writes it for a job that is done.
func recordOf(id string) map[string]*string {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	metadata := map[string]*string{}
	for key, value := range map[string]string{
		"v": "1", "status": "done", "kind": "noop", "messageid": id, "token": id, "write": "1", "generation": "1",
		"payloadhash": "5d2e0a8a3f6c3e1f7c1f2b7cb0d1a4e3c6b5a49788796a5b4c3d2e1f00112233",
		"progress":    "1", "createdat": now, "claimedat": now, "endedat": now, "owner": "bench-0", "overhead": "1",
	} {
		metadata[key] = &value
	}
	return metadata
}

// putsCommand puts messages with the Azure SDK and does nothing else.
type putsCommand struct {
	Messages int    `help:"How many."`
	Storage  string `help:"Connection string." env:"AZURE_STORAGE_CONNECTION_STRING"`
}

// putParallel is the producer's default.
const putParallel = 16

// Run puts the messages and returns.
func (c *putsCommand) Run(ctx context.Context) error {
	queue, err := azqueue.NewQueueClientFromConnectionString(c.Storage, names().Queue,
		&azqueue.ClientOptions{ClientOptions: sdkOptions(putParallel)})
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(putParallel)
	for i := range c.Messages {
		group.Go(func() error {
			text := fmt.Sprintf(`{"v":1,"id":"019b0000-0000-7000-8000-%012d","kind":"noop","payload":%s}`, i, payload)
			_, err := queue.EnqueueMessage(ctx, base64.StdEncoding.EncodeToString([]byte(text)),
				&azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))})
			return err
		})
	}
	return group.Wait()
}
