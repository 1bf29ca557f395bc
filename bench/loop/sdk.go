package loop

import (
	"bytes"
	"context"
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
)

// sdkCaller makes calls with the Azure SDK as it comes, but for connections: by
// default it keeps ten of a host.
type sdkCaller struct {
	queue   *azqueue.QueueClient
	records *container.Client
}

// NewTransport keeps a connection for each call at once.
func NewTransport(calls int) *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, MaxIdleConns: 4 * calls, MaxIdleConnsPerHost: 2 * calls, IdleConnTimeout: time.Minute,
		DisableCompression: true,
	}
}

func newSDKCaller(l Loop) (*sdkCaller, error) {
	options := policy.ClientOptions{Transport: &http.Client{Transport: NewTransport(l.Slots + claimed)}}
	queue, err := azqueue.NewQueueClientFromConnectionString(l.ConnectionString, l.Queue, &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	records, err := container.NewClientFromConnectionString(l.ConnectionString, l.Records, &container.ClientOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	return &sdkCaller{queue, records}, nil
}

func (c *sdkCaller) claim(ctx context.Context, n int) ([]message, error) {
	reply, err := c.queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(n)),
		VisibilityTimeout: new(int32(30))})
	if err != nil {
		return nil, err
	}
	list := make([]message, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		list = append(list, message{*m.MessageID, *m.PopReceipt, *m.MessageText})
	}
	return list, nil
}

func (c *sdkCaller) record(ctx context.Context, m message) error {
	metadata := map[string]*string{}
	for key, value := range recordOf(m) {
		metadata[key] = &value
	}
	_, err := c.records.NewBlockBlobClient(m.id).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)), &blockblob.UploadOptions{
		Metadata:         metadata,
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}},
	})
	return err
}

func (c *sdkCaller) remove(ctx context.Context, m message) error {
	_, err := c.queue.DeleteMessage(ctx, m.id, m.receipt, nil)
	return err
}
