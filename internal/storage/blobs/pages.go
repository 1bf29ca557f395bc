package blobs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

const (
	// mostEmpty is how many pages without a blob may follow each other. The service may
	// send some where many blobs were removed.
	mostEmpty = 1000

	// tries is how often a page is asked for that comes incomplete, and tryAfter the wait
	// between two tries.
	tries    = 3
	tryAfter = 200 * time.Millisecond
)

// List yields the blobs whose names start with prefix, in the order of their names, and their
// metadata if it is asked for. It costs a call for each 5,000 blobs. Each page has a time limit
// of its own, since a listing may have any number of pages.
//
// An answer that lacks a part which the service always sends, and a listing that does not
// proceed, are errors of the connection ([url.Error]).
func (c Container) List(ctx context.Context, prefix string, metadata bool) iter.Seq2[Blob, error] {
	return func(yield func(Blob, error) bool) {
		l := lister{client: c.client, options: container.ListBlobsFlatOptions{
			Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: metadata},
		}}
		for more := true; more; {
			page, err := l.next(ctx, c.timeout(listTimeout))
			if err != nil {
				yield(Blob{}, err)
				return
			}
			for _, item := range page.blobs {
				if !yield(blobOf(item, page.date), nil) {
					return
				}
			}
			more = l.options.Marker != nil
		}
	}
}

// blobOf returns a listed blob.
func blobOf(item *container.BlobItem, read time.Time) Blob {
	p := item.Properties
	return Blob{
		Name: *item.Name, Size: *p.ContentLength, ETag: quoted(*p.ETag), MD5: p.ContentMD5, Metadata: item.Metadata,
		ModifiedAt: *p.LastModified, ReadAt: read,
		IsArchived: value(p.AccessTier) == blob.AccessTierArchive, IsFolder: value(p.ResourceType) == "directory",
	}
}

// page is one page of a listing. Its blobs have a name and properties with an ETag, a length
// and a time of the last change.
type page struct {
	blobs []*container.BlobItem
	date  time.Time // by the service's clock
}

// lister is a listing between two pages.
type lister struct {
	client  *container.Client
	options container.ListBlobsFlatOptions // Marker is the next page's
	seen    map[string]bool                // markers
	first   string                         // the name of the first blob of the last page that had one
	empty   int                            // pages without a blob since then
}

// next gets the next page, and sets the marker of the one after it.
func (l *lister) next(ctx context.Context, most time.Duration) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var err error
	for try := range tries {
		if try > 0 && !sleep(ctx, tryAfter) {
			break
		}
		var reply container.ListBlobsFlatResponse
		if reply, err = l.client.NewListBlobsFlatPager(&l.options).NextPage(ctx); err == nil {
			err = check(reply)
		} else if ctx.Err() != nil || isAnswered(err) {
			return page{}, err
		}
		if err != nil {
			continue
		}
		found := page{blobs: reply.Segment.BlobItems, date: *reply.Date}
		if err = l.proceed(found, reply.NextMarker); err != nil {
			break
		}
		return found, nil
	}
	address, _, _ := strings.Cut(l.client.URL(), "?") // which may have a signature
	return page{}, &url.Error{Op: "Get", URL: address, Err: err}
}

// isAnswered reports whether an error comes from the service or the connection, and not
// from a list that cannot be decoded.
func isAnswered(err error) bool {
	_, refused := errors.AsType[*azcore.ResponseError](err)
	_, network := errors.AsType[net.Error](err)
	return refused || network
}

// check returns the missing parts of an answer.
func check(reply container.ListBlobsFlatResponse) error {
	if reply.Segment == nil || reply.Date == nil {
		return errors.New("the list has no blobs and no end; a proxy or a gateway may have sent it")
	}
	for i, item := range reply.Segment.BlobItems {
		if item == nil || item.Name == nil || item.Properties == nil ||
			item.Properties.ETag == nil || item.Properties.ContentLength == nil || item.Properties.LastModified == nil {
			return fmt.Errorf("blob %d of the list lacks a name, an ETag, a length or a time; a proxy or a gateway may have sent it", i+1)
		}
	}
	return nil
}

// errStands means that the pages of a listing repeat.
var errStands = errors.New("the list does not come to an end: its pages repeat, or have no blobs")

// proceed takes the marker of the page after this one.
func (l *lister) proceed(p page, marker *string) error {
	before := l.options.Marker
	l.options.Marker = nil
	if marker == nil || *marker == "" {
		return nil
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	if before != nil {
		l.seen[*before] = true
	}
	if l.seen[*marker] {
		return errStands
	}
	if len(p.blobs) == 0 {
		l.empty++
	} else if first := *p.blobs[0].Name; before != nil && first == l.first {
		return errStands
	} else {
		l.first, l.empty = first, 0
	}
	if l.empty > mostEmpty {
		return errStands
	}
	l.options.Marker = marker
	return nil
}

// sleep reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
