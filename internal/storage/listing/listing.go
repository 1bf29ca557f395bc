// Package listing reads the storage service's lists page by page.
package listing

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

// Page is one page of a listing. Its blobs have a name and properties with an ETag, a
// length and a time of the last change.
type Page struct {
	Blobs []*container.BlobItem
	Date  time.Time // by the service's clock
}

// Pages yields the pages of a listing of blobs, and waits at most that long for each. A
// limit on a whole listing would make a long one fail: it may have any number of pages.
//
// An answer that lacks a part which the service always sends, and a listing that does not
// proceed, are errors of the connection ([url.Error]).
func Pages(ctx context.Context, most time.Duration, client *container.Client, o container.ListBlobsFlatOptions) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		l := lister{client: client, options: o}
		for more := true; more; {
			page, err := l.next(ctx, most)
			if !yield(page, err) || err != nil {
				return
			}
			more = l.options.Marker != nil
		}
	}
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
func (l *lister) next(ctx context.Context, most time.Duration) (Page, error) {
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
			return Page{}, err
		}
		if err != nil {
			continue
		}
		page := Page{Blobs: reply.Segment.BlobItems, Date: *reply.Date}
		if err = l.proceed(page, reply.NextMarker); err != nil {
			break
		}
		return page, nil
	}
	address, _, _ := strings.Cut(l.client.URL(), "?") // which may have a signature
	return Page{}, &url.Error{Op: "Get", URL: address, Err: err}
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
func (l *lister) proceed(page Page, marker *string) error {
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
	if len(page.Blobs) == 0 {
		l.empty++
	} else if first := *page.Blobs[0].Name; before != nil && first == l.first {
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
