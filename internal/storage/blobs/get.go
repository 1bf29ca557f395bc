package blobs

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

// Get returns a blob and its content of at most so many bytes. The error is [ErrTooLarge] if
// it has more, and the blob is described all the same.
func (c Container) Get(ctx context.Context, name string, most int64) (Blob, []byte, error) {
	return c.GetIf(ctx, name, most, nil)
}

// GetIf is Get under a condition.
func (c Container) GetIf(ctx context.Context, name string, most int64, condition *blob.AccessConditions) (Blob, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(transferTimeout))
	defer cancel()
	reply, err := c.client.NewBlobClient(name).DownloadStream(ctx, &blob.DownloadStreamOptions{AccessConditions: condition})
	if err != nil {
		return Blob{}, nil, err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	found := Blob{
		Name: name, Size: value(reply.ContentLength), ETag: value(reply.ETag), Metadata: reply.Metadata,
		ModifiedAt: value(reply.LastModified), ReadAt: value(reply.Date),
	}
	if found.Size > most {
		return found, nil, ErrTooLarge
	}
	data := bytes.NewBuffer(make([]byte, 0, found.Size+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(body, most+1)); err != nil {
		return Blob{}, nil, err
	}
	if int64(data.Len()) > most {
		return found, nil, ErrTooLarge
	}
	return found, data.Bytes(), nil
}

// LengthError means that the reply to a request for a range has another length. A proxy that
// ignores ranges sends the blob from its start.
type LengthError struct{ Want, Offset int64 }

func (e *LengthError) Error() string {
	return fmt.Sprintf("the reply to a request for %d bytes at offset %d is not of that length", e.Want, e.Offset)
}

// ReadRange fills data with the content of a blob with that ETag from offset on. An attempt that
// is cut short loses nothing: the SDK's reader requests the rest of the range.
func ReadRange(ctx context.Context, b *blob.Client, etag azcore.ETag, data []byte, offset int64) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	reply, err := b.DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range: blob.HTTPRange{Offset: offset, Count: int64(len(data))}, AccessConditions: Same(etag),
	})
	if err != nil {
		return err
	}
	body := reply.NewRetryReader(ctx, nil)
	defer func() { _ = body.Close() }()
	if value(reply.ContentLength) != int64(len(data)) {
		return &LengthError{int64(len(data)), offset}
	}
	_, err = io.ReadFull(body, data)
	return err
}

// Open returns the content of a blob with that ETag, empty for any, from offset on. Only ctx limits its time.
func (c Container) Open(ctx context.Context, name string, etag azcore.ETag, offset int64) (io.ReadCloser, error) {
	o := blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset}}
	if etag != "" {
		o.AccessConditions = Same(etag)
	}
	reply, err := c.client.NewBlobClient(name).DownloadStream(ctx, &o)
	if err != nil {
		return nil, err
	}
	return reply.NewRetryReader(ctx, nil), nil
}
