package blobs

import (
	"bytes"
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
)

// Options describe a blob that is written.
type Options struct {
	// Type is its content type.
	Type string

	Metadata map[string]*string

	// If is the condition; nil for none.
	If *blob.AccessConditions
}

// Put writes a blob by one call, and returns its ETag.
func (c Container) Put(ctx context.Context, name string, data []byte, o Options) (azcore.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(transferTimeout))
	defer cancel()
	options := &blockblob.UploadOptions{Metadata: o.Metadata, AccessConditions: o.If}
	if o.Type != "" {
		options.HTTPHeaders = &blob.HTTPHeaders{BlobContentType: &o.Type}
	}
	reply, err := c.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(data)), options)
	return value(reply.ETag), err
}

// Create writes a blob with the hash of its content in its name: an existing one is the same.
func (c Container) Create(ctx context.Context, name string, data []byte, contentType string) error {
	_, err := c.Put(ctx, name, data, Options{Type: contentType, If: Same("")})
	if IsConflict(err) {
		return nil
	}
	return err
}

// Delete deletes a blob and reports whether it did: false means that the blob is gone or,
// with an ETag, that it was written since.
func (c Container) Delete(ctx context.Context, name string, etag azcore.ETag) (deleted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(callTimeout))
	defer cancel()
	var options *blob.DeleteOptions
	if etag != "" {
		options = &blob.DeleteOptions{AccessConditions: Same(etag)}
	}
	_, err = c.client.NewBlobClient(name).Delete(ctx, options)
	if IsMissing(err) || IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}
