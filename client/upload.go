package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/storage/upload"
	"github.com/spotworker/spotworker/job"
)

// Errors of uploads.
var (
	// ErrNoContainer means that the account has no container of that name.
	ErrNoContainer = errors.New("there is no such container")

	// ErrExists means that the container has a blob of that name.
	ErrExists = errors.New("the blob exists")
)

// UploadOptions are settings of [Client.Upload].
type UploadOptions struct {
	// Size is the length of the content in bytes. Default: unknown, and then the content
	// has at most 195 GiB.
	Size int64

	// Replace replaces a blob that exists, whatever its content is. A job that names the version before, by its
	// ETag, or that has begun with it, is then given up.
	Replace bool

	// Create creates the container if it does not exist.
	Create bool
}

// Upload stores a content as the blob of to.Container and to.Blob, and returns to with the
// ETag of the stored version, for [Spec].Inputs. It sends blocks of bounded memory: a call
// for each 4 MiB, and two more. The blob appears when all of it is stored. The container is
// in the account of the deployment, and must not be one of the deployment's own.
//
// A blob that exists with the same content counts as uploaded. It is read for that, unless its
// length differs from [UploadOptions].Size.
//
// The error is [ErrNoContainer], [ErrExists] for a blob with another content, or [ErrDenied] if the identity lacks the role
// Storage Blob Data Contributor there. The first call looks at the blob, so that a long
// content is not sent in vain. An error of content is returned as it is.
func (c *Client) Upload(ctx context.Context, to job.Input, content io.Reader, o UploadOptions) (job.Input, error) {
	switch err := named.Check(to); {
	case err != nil:
		return job.Input{}, err
	case to.Blob == "" || to.Account != "":
		return job.Input{}, errors.New("an upload needs a container and a blob, in the account of the deployment")
	case slices.Contains(c.stores.ContainerNames(), to.Container):
		return job.Input{}, fmt.Errorf("container %s is one of the deployment's own: inputs cannot come from there", to.Container)
	}
	in := c.stores.Account.Container(to.Container)
	switch there, err := c.uploadable(ctx, in, to, o); {
	case err != nil:
		return job.Input{}, err
	case there != nil && o.Size > 0 && *there.ContentLength != o.Size:
		return job.Input{}, exists(to)
	case there != nil:
		return c.same(ctx, in, to, content)
	}
	if o.Size <= 0 {
		o.Size = -1
	}
	sent, err := c.send(ctx, in, to, content, upload.Options{Size: o.Size, Type: upload.TypeOf(to.Blob), Replace: o.Replace})
	switch {
	case errors.Is(err, upload.ErrTaken):
		return job.Input{}, exists(to)
	case err != nil:
		return job.Input{}, err
	}
	to.ETag = string(sent.ETag)
	return to, nil
}

// send sends a content as a blob. The error is [upload.ErrTaken] for a blob that is there, and that
// of content as it is.
func (c *Client) send(ctx context.Context, in *container.Client, to job.Input, content io.Reader, o upload.Options) (upload.Sent, error) {
	o.Token = uuid.NewString()
	sent, err := upload.Send(ctx, in.NewBlockBlobClient(to.Blob), content, o)
	switch unreadable, ok := errors.AsType[*upload.ReadError](err); {
	case ctx.Err() != nil:
		return sent, context.Cause(ctx)
	case ok:
		return sent, unreadable.Err
	case err != nil && !errors.Is(err, upload.ErrTaken):
		return sent, c.uploadError(to, err)
	}
	return sent, err
}

// uploadable returns why a blob cannot be uploaded, or the blob that is there and must not be
// replaced. It creates the container if o.Create is set.
func (c *Client) uploadable(ctx context.Context, in *container.Client, to job.Input, o UploadOptions) (*blob.GetPropertiesResponse, error) {
	there, err := in.NewBlobClient(to.Blob).GetProperties(ctx, nil)
	switch {
	case err == nil && !o.Replace:
		return &there, nil
	case err == nil, bloberror.HasCode(err, bloberror.BlobNotFound):
		return nil, nil
	case bloberror.HasCode(err, bloberror.ContainerNotFound) && o.Create:
		if _, err = in.Create(ctx, nil); err == nil || bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return nil, nil
		}
	}
	return nil, c.uploadError(to, err)
}

// same returns the version of a blob that has the content, or [ErrExists].
func (c *Client) same(ctx context.Context, in *container.Client, to job.Input, content io.Reader) (job.Input, error) {
	reply, err := in.NewBlobClient(to.Blob).DownloadStream(ctx, nil)
	if err != nil {
		return job.Input{}, c.uploadError(to, err)
	}
	body := reply.NewRetryReader(ctx, nil)
	defer body.Close()
	mine, theirs := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(content, mine)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return job.Input{}, err
		}
		m, err := io.ReadFull(body, theirs)
		switch {
		case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return job.Input{}, c.uploadError(to, err)
		case !bytes.Equal(mine[:n], theirs[:m]):
			return job.Input{}, exists(to)
		case ended:
			to.ETag = string(*reply.ETag)
			return to, nil
		}
	}
}

func exists(to job.Input) error {
	return fmt.Errorf("blob %s of container %s: %w", to.Blob, to.Container, ErrExists)
}

// uploadError translates an error of the storage service about a blob.
func (c *Client) uploadError(to job.Input, err error) error {
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		return fmt.Errorf("container %s of %s: %w", to.Container, c.stores.Account.Host(), ErrNoContainer)
	}
	return c.readable(fmt.Errorf("upload blob %s to container %s: %w", to.Blob, to.Container, err), toWrite)
}
