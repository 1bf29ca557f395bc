package outputs

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/storage/listing"
)

// Stored is a blob in the container of outputs, as it was listed.
type Stored struct {
	Job  string // its job's id
	Name string // behind the job's folder: <claim>/<path>, or a manifest's name
	Size int64

	ModifiedAt, ReadAt time.Time // by the service's clock

	etag azcore.ETag
}

// Age is how long ago the blob was written, by the service's clock.
func (b Stored) Age() time.Duration { return b.ReadAt.Sub(b.ModifiedAt) }

// List yields all blobs with names of outputs and manifests, in the order of their names:
// a job's blobs follow each other. With an id it yields only that job's. It costs one
// call for 5,000 blobs.
func (s *Store) List(ctx context.Context, id string) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		o := container.ListBlobsFlatOptions{}
		if id != "" {
			o.Prefix = new(jobid.Path(id) + "/")
		}
		for page, err := range listing.Pages(ctx, listTimeout, s.container, o) {
			if err != nil {
				yield(Stored{}, fmt.Errorf("list outputs: %w", err))
				return
			}
			for _, item := range page.Blobs {
				if b, ok := storedOf(item, page.Date); ok && !yield(b, nil) {
					return
				}
			}
		}
	}
}

func storedOf(item *container.BlobItem, read time.Time) (b Stored, ok bool) {
	_, rest, _ := strings.Cut(value(item.Name), "/")
	id, name, _ := strings.Cut(rest, "/")
	if jobid.Validate(id) != nil || value(item.Name) != jobid.Path(id)+"/"+name || item.Properties == nil {
		return Stored{}, false
	}
	p := item.Properties
	etag := value(p.ETag)
	if !strings.HasPrefix(string(etag), `"`) { // a listing has it without quotes
		etag = `"` + etag + `"`
	}
	return Stored{
		Job: id, Name: name, Size: value(p.ContentLength), ModifiedAt: value(p.LastModified), ReadAt: read, etag: etag,
	}, true
}

// Remove removes a blob if it is as it was listed. It is no error if it is gone.
func (s *Store) Remove(ctx context.Context, b Stored) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.container.NewBlobClient(jobid.Path(b.Job)+"/"+b.Name).Delete(ctx, &blob.DeleteOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &b.etag}},
	})
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ConditionNotMet) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove an output of job %s: %w", b.Job, err)
	}
	return true, nil
}

// Named returns the names, as in [Stored], of a list and of its files.
func (s *Store) Named(ctx context.Context, id, hash string) (map[string]bool, error) {
	files, err := s.Files(ctx, id, hash)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{strings.TrimPrefix(manifestName(id, hash), jobid.Path(id)+"/"): true}
	for _, f := range files {
		named[f.Folder+"/"+f.Path] = true
	}
	return named, nil
}
