// Package blobs gets, puts, lists and deletes the blobs of a container, each as a whole and
// within a time limit. Package blobref explains the errors to the owner of a job.
package blobs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// Time limits of one call, including the SDK's retries. A caller with less time passes a
// context that ends sooner.
const (
	callTimeout     = 20 * time.Second
	listTimeout     = time.Minute     // of one page
	transferTimeout = 2 * time.Minute // of a call with the content of a blob
)

// ErrTooLarge means that a blob has more bytes than the caller reads.
var ErrTooLarge = errors.New("the blob is too large")

// Container is a container whose blobs are read and written as a whole.
type Container struct {
	client *container.Client
	limit  time.Duration // of every call; 0 for the time limits of this package
}

// In returns a container.
func In(c *container.Client) Container { return Container{client: c} }

// Within returns the container with a time limit for every call.
func (c Container) Within(limit time.Duration) Container {
	c.limit = limit
	return c
}

func (c Container) timeout(usual time.Duration) time.Duration {
	if c.limit > 0 {
		return c.limit
	}
	return usual
}

// Blob describes a blob as it was read or listed.
type Blob struct {
	Name       string
	Size       int64       // in bytes
	ETag       azcore.ETag // with quotes, as in a header
	MD5        []byte      // nil if the service has none
	Metadata   map[string]*string
	ModifiedAt time.Time
	ReadAt     time.Time // by the service's clock, as ModifiedAt

	IsArchived bool // in the archive tier: it cannot be read
	IsFolder   bool // of an account with folders
}

// Age is how long ago the blob was written.
func (b Blob) Age() time.Duration { return b.ReadAt.Sub(b.ModifiedAt) }

// Check reports whether the container can be reached.
func (c Container) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(callTimeout))
	defer cancel()
	_, err := c.client.GetProperties(ctx, nil)
	return err
}

// Find returns the description of a blob.
func (c Container) Find(ctx context.Context, name string) (Blob, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(callTimeout))
	defer cancel()
	reply, err := c.client.NewBlobClient(name).GetProperties(ctx, nil)
	if err != nil {
		return Blob{}, err
	}
	return Blob{
		Name: name, Size: value(reply.ContentLength), ETag: value(reply.ETag), MD5: reply.ContentMD5, Metadata: reply.Metadata,
		ModifiedAt: value(reply.LastModified), ReadAt: value(reply.Date),
		IsArchived: reply.ArchiveStatus != nil || value(reply.AccessTier) == string(blob.AccessTierArchive),
	}, nil
}

// Same returns the condition that a blob has that ETag or, with an empty one, that it does
// not exist.
func Same(etag azcore.ETag) *blob.AccessConditions {
	if etag == "" {
		return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}}
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: new(quoted(etag))}}
}

// Changed returns the condition that a blob has another ETag, and none without an ETag. Get
// returns a blob that still has that ETag without a content.
func Changed(etag azcore.ETag) *blob.AccessConditions {
	if etag == "" {
		return nil
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &etag}}
}

// quoted returns an ETag as headers have it: a listing has no quotes.
func quoted(etag azcore.ETag) azcore.ETag {
	if etag == "" || strings.HasPrefix(string(etag), `"`) {
		return etag
	}
	return `"` + etag + `"`
}

// IsMissing reports whether a call failed because the blob does not exist.
func IsMissing(err error) bool { return bloberror.HasCode(err, bloberror.BlobNotFound) }

// IsConflict reports whether a call failed because its condition does not hold.
func IsConflict(err error) bool {
	return bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists)
}

// value returns the value of p, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
