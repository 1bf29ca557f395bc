package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/storage/blobs"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

const (
	// damagedPrefix begins the names of damaged documents that were kept.
	damagedPrefix = blobName + ".damaged-"

	// maxKept is the most bytes of a damaged document that Repair copies, and keepTimeout
	// the timeout of reading or writing them.
	maxKept     = 64 << 20
	keepTimeout = time.Minute
)

// DamagedError means that there is a control document and its content is none.
type DamagedError struct {
	Err error

	etag   azcore.ETag
	readAt time.Time // by the service's clock
}

// Error names the fault of the content.
func (e *DamagedError) Error() string {
	return "the control document (blob " + blobName + ") is damaged: " + e.Err.Error()
}

// Unwrap returns the fault of the content.
func (e *DamagedError) Unwrap() error { return e.Err }

// Repair is [Store.Edit], and replaces a damaged document. A copy of the damaged one is
// kept under another name first. Without damage kept is empty, and Repair is Edit.
//
// The requests of the damaged document are unknown. The new one has only the requests
// that apply adds, and says that every job may have been cancelled: workers that read it
// check the records of all their jobs once, so no cancel is missed.
func (s *Store) Repair(ctx context.Context, apply Change) (d Document, kept string, err error) {
	d, err = s.edit(ctx, apply, func(damaged *DamagedError) (Document, error) {
		name, revision, err := s.keep(ctx, damaged.etag)
		if err != nil {
			return Document{}, err
		}
		kept = name
		at := damaged.readAt
		// Revisions must not go back: commands that wait for workers compare them.
		return Document{Revision: max(revision, int(at.Unix())), CheckAll: at, CheckBefore: at}, nil
	})
	if err != nil {
		kept = ""
	}
	return d, kept, err
}

// keep copies the damaged document with that ETag. It returns the name of the copy, which
// follows from the content, so that a repetition writes the same blob; and the revision
// that the content seems to have.
func (s *Store) keep(ctx context.Context, etag azcore.ETag) (name string, revision int, err error) {
	copies := s.blobs.Within(keepTimeout)
	_, body, err := copies.GetIf(ctx, blobName, maxKept, blobs.Same(etag))
	if errors.Is(err, blobs.ErrTooLarge) {
		err = fmt.Errorf("it has more than %d bytes: move the blob %s yourself", maxKept, blobName)
	}
	if err != nil {
		return "", 0, fmt.Errorf("read the damaged control document: %w", err)
	}
	sum := sha256.Sum256(body)
	name = damagedPrefix + hex.EncodeToString(sum[:8])
	if err := copies.Create(ctx, name, body, ""); err != nil {
		return "", 0, fmt.Errorf("keep the damaged control document as blob %s: %w", name, err)
	}
	return name, revisionIn(body), nil
}

// revisionField finds the revision in a document that is no longer JSON.
var revisionField = lazyregexp.New(`"revision"\s*:\s*(\d{1,15})\b`)

// revisionIn returns the revision that a damaged document seems to have, 0 if none.
func revisionIn(body []byte) int {
	found := revisionField().FindSubmatch(body)
	if found == nil {
		return 0
	}
	revision, _ := strconv.Atoi(string(found[1])) // 0 where it does not fit
	return revision
}

// isDamaged returns the damage that made a read fail, or nil.
func isDamaged(err error) *DamagedError {
	damaged, _ := errors.AsType[*DamagedError](err)
	return damaged
}
