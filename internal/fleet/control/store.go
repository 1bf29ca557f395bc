package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// blobName is the name of the document in its container.
const blobName = "control"

const (
	// callTimeout is the timeout of one call, including the SDK's retries.
	callTimeout = 5 * time.Second

	// maxEdits is how often a change is tried while others change the document.
	maxEdits = 10
)

// editDelays are the waits between the tries of a change.
var editDelays = retry.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}

// Store reads and changes the control document of a deployment.
type Store struct{ blobs blobs.Container }

// NewStore returns the store of the document in container c.
func NewStore(c *container.Client) *Store { return &Store{blobs.In(c).Within(callTimeout)} }

// Snapshot is the document as it was read.
type Snapshot struct {
	Document Document

	// ETag is the document's; empty if there is none.
	ETag azcore.ETag

	// ReadAt is when it was read, by the service's clock.
	ReadAt time.Time
}

// Read returns the document. changed is false if it still has that ETag. If there is
// no document, or no container for it, Read returns an empty one. The error wraps
// [ErrNewer] if the document is of a version that this program does not know, and is a
// [*DamagedError] if it is no document.
func (s *Store) Read(ctx context.Context, known azcore.ETag) (found Snapshot, changed bool, err error) {
	b, body, err := s.blobs.GetIf(ctx, blobName, maxBody, blobs.Changed(known))
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound):
		return Snapshot{ReadAt: dateOf(err)}, known != "", nil
	case err != nil && !errors.Is(err, blobs.ErrTooLarge):
		return Snapshot{}, false, fmt.Errorf("read the control document: %w", err)
	case b.ETag == "" || b.ETag == known: // 304, without a body
		return Snapshot{}, false, nil
	}
	found.ETag, found.ReadAt = b.ETag, b.ReadAt
	if err == nil {
		err = json.Unmarshal(body, &found.Document)
	}
	switch {
	case errors.Is(err, ErrNewer):
		return Snapshot{}, false, err
	case err != nil:
		return Snapshot{}, false, &DamagedError{Err: err, etag: found.ETag, readAt: found.ReadAt}
	}
	return found, true, nil
}

// Change changes a document, and reports whether it did. now is the service's time.
type Change func(d *Document, now time.Time) (changed bool, err error)

// Edit changes the document with apply, which gets the document and the time by the
// service's clock, and may be called more than once. It creates a document that is not
// there. Edit returns the document as it is then; if apply changes nothing, because it
// returns false, nothing is written. An error of apply is returned as it is.
//
// Repeating an edit after an error is harmless as long as apply sets rather than
// counts.
func (s *Store) Edit(ctx context.Context, apply Change) (Document, error) {
	return s.edit(ctx, apply, nil)
}

// edit is Edit. If repair is not nil, it returns the document that replaces a damaged one,
// which is written also if apply changes nothing.
func (s *Store) edit(
	ctx context.Context, apply Change, repair func(*DamagedError) (Document, error),
) (Document, error) {
	var last error
	for try := range maxEdits {
		if try > 0 {
			if err := retry.Sleep(ctx, editDelays.Delay(try)); err != nil {
				return Document{}, fmt.Errorf("change the control document: %w", errors.Join(err, last))
			}
		}
		found, _, err := s.Read(ctx, "")
		damaged := isDamaged(err)
		if damaged != nil && repair != nil {
			found = Snapshot{ETag: damaged.etag, ReadAt: damaged.readAt}
			found.Document, err = repair(damaged)
		}
		if last = err; blobs.IsConflict(err) {
			continue // another program repaired it
		}
		if err != nil {
			return Document{}, err
		}
		next := found.Document
		changed, err := apply(&next, found.ReadAt)
		switch {
		case err != nil && damaged != nil:
			return Document{}, fmt.Errorf("the control document was not replaced: a new one asks for nothing, and %w", err)
		case err != nil || !changed && damaged == nil:
			return next, err
		}
		next.Revision++
		last = s.write(ctx, next, found.ETag)
		if last == nil {
			return next, nil
		}
		if !blobs.IsConflict(last) {
			break
		}
	}
	return Document{}, fmt.Errorf("change the control document: %w", last)
}

// write replaces the document on condition that it has that ETag; with an empty one
// it creates it.
func (s *Store) write(ctx context.Context, d Document, etag azcore.ETag) error {
	body, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = s.blobs.Put(ctx, blobName, body, blobs.Options{Type: "application/json", If: blobs.Same(etag)})
	return err
}

// dateOf returns the service's time of a response that is an error; now if it has none.
func dateOf(err error) time.Time {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && response.RawResponse != nil {
		if at, err := http.ParseTime(response.RawResponse.Header.Get("Date")); err == nil {
			return at
		}
	}
	return time.Now()
}
