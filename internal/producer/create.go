package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/queue"
)

// createTimeout bounds the creation of a container, the SDK's retries included.
const createTimeout = 20 * time.Second

// Create makes the queues and the named containers that are missing. An identity
// that may put messages but create nothing is no error here: what it uses is
// usually there, and if it is not, the first use says so.
func Create(ctx context.Context, queues []*queue.Queue, containers map[string]*container.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, q := range queues {
		group.Go(func() error { return unlessForbidden(q.Create(ctx)) })
	}
	for name, client := range containers {
		group.Go(func() error { return unlessForbidden(createContainer(ctx, client, name)) })
	}
	return group.Wait()
}

// Reach reports whether there is such a queue, and writes nothing. An identity
// that may put messages but not look at the queue is no error: it is taken to be
// there.
func Reach(ctx context.Context, q *queue.Queue) (exists bool, err error) {
	_, err = q.Depth(ctx)
	if queueerror.HasCode(err, queueerror.QueueNotFound) {
		return false, nil
	}
	return true, unlessForbidden(err)
}

func createContainer(ctx context.Context, client *container.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := client.Create(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return fmt.Errorf("create container %s: %w", name, err)
	}
	return nil
}

// unlessForbidden drops the refusals of an identity that the service knows. A
// wrong key or token is another matter: it can do nothing at all.
func unlessForbidden(err error) error {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if ok && response.StatusCode == http.StatusForbidden && response.ErrorCode != string(bloberror.AuthenticationFailed) {
		return nil
	}
	return err
}
