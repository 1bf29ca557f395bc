package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/retry"
)

// Bounds of the repeats of one write.
const (
	maxRepeats    = 8
	firstRepeat   = 100 * time.Millisecond
	longestRepeat = 5 * time.Second
)

// ConflictError says that this claim does not own the record, and contains the
// record as found. Ruling is Finish, PutBack, Mismatch, Unreadable or Fenced. The
// claim writes nothing more.
type ConflictError struct {
	Ruling Ruling
	Record Record
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("this delivery does not own the record of job %s (%s): it is %s, generation %d, owner %q",
		e.Record.ID, e.Ruling, e.Record.Status, e.Record.Generation, e.Record.Owner)
}

// content is the new body of a write. The zero value leaves the body as it is.
type content struct {
	data   []byte   // if not nil, the body in one piece
	blocks []string // if not nil, the body as these blocks, which must be there
}

// keeps reports whether the body stays as it is.
func (c content) keeps() bool { return c.data == nil && c.blocks == nil }

// change turns the current record into the one to write, and returns the new body.
// It may be applied more than once, each time to the record as it is then.
type change func(*Record) content

// unchanged is the change of a write that only acquires or creates the record.
func unchanged(*Record) content { return content{} }

// doubt is a write whose outcome is unknown.
type doubt struct {
	attempt Attempt
	next    Record
	content content
}

// write makes one change to the record. It first settles a write in doubt, and after
// a conflict or an unknown outcome lets one read decide. It returns nil once the
// change has taken effect, a [*ConflictError] if this claim does not own the record,
// and any other error if the outcome is unknown; the next write then settles it.
func (c *Claim) write(ctx context.Context, ch change) error {
	if _, err := c.settle(ctx); err != nil {
		return err
	}
	var err error
	for repeat := range maxRepeats {
		if err := pause(ctx, repeat); err != nil {
			return err
		}
		if over, err := c.hasEnded(ch); over {
			return err
		}
		if err = c.attempt(ctx, ch); err == nil {
			return nil
		}
		if c.doubt == nil {
			return fmt.Errorf("write record of job %s: %w", c.delivery.ID, err)
		}
		if effective, settleErr := c.settle(ctx); settleErr != nil {
			return settleErr
		} else if effective {
			return nil
		}
		if PermanentRefusal(err) != "" {
			return fmt.Errorf("write record of job %s: %w", c.delivery.ID, err)
		}
	}
	return fmt.Errorf("write record of job %s: gave up after %d repeats, the last: %w", c.delivery.ID, maxRepeats, err)
}

// hasEnded reports whether an earlier write ended the claim. A caller that did not
// learn of its success may repeat the same ending: it returns no error, and nothing
// is written, since that would count a failure or an interruption twice. Any other
// change is a conflict.
func (c *Claim) hasEnded(ch change) (over bool, err error) {
	if c.record.Status == Running || c.opening != nil {
		return false, nil
	}
	wanted := c.record
	ch(&wanted)
	switch {
	case wanted.Status == c.record.Status:
		return true, nil
	case c.record.Status.Final():
		return true, c.conflict(Finish, c.record)
	default:
		return true, c.conflict(PutBack, c.record)
	}
}

// attempt sends the change once. Unless the outcome is certain it leaves the write in
// doubt.
func (c *Claim) attempt(ctx context.Context, ch change) error {
	c.number++
	next := c.record
	next.Version, next.Token, next.Write, next.Owner = Version, c.token, c.number, c.owner
	next.RunTime = c.RunTime().Truncate(time.Millisecond)
	next.Log, next.Inputs = c.logAfter(next.Log), c.inputsAfter(next.Inputs)
	next.Outputs, next.StepsBack = c.outputsAfter(next.Outputs), c.stepsAfter(next.StepsBack)
	if c.opening != nil {
		c.opening(&next)
	}
	body, err := c.asBlockList(ctx, ch(&next))
	c.account(&next)
	next.Charge = next.Status == Running && c.charged()
	if err != nil {
		return err
	}
	etag, err := c.store.put(ctx, &next, c.record.ETag, body)
	if err == nil {
		c.adopt(next, etag, body)
		return nil
	}
	c.uncommittedBlocks = bloberror.HasCode(err, bloberror.BlobAlreadyExists)
	if !refused(err) {
		c.doubt = &doubt{next: next, content: body, attempt: Attempt{Token: c.token, Write: c.number, Under: c.record.ETag}}
	}
	return err
}

// asBlockList returns the content as a block list if the blob has staged blocks but
// no record, as after the record's removal. The service then refuses a Put Blob
// until it discards the blocks a week later, but accepts a Put Block List.
func (c *Claim) asBlockList(ctx context.Context, body content) (content, error) {
	if !c.uncommittedBlocks || c.record.ETag != "" || body.blocks != nil {
		return body, nil
	}
	if len(body.data) == 0 {
		return content{blocks: []string{}}, nil
	}
	m, err := c.store.upload(ctx, c.delivery.ID, bytes.NewReader(body.data), &c.blocks)
	return content{blocks: m.Blocks}, err
}

// adopt makes a write that took effect the known record.
func (c *Claim) adopt(written Record, etag azcore.ETag, body content) {
	written.ETag = etag
	c.set(written)
	switch {
	case body.keeps():
	case body.blocks != nil:
		c.blocks = blocks.Committed(body.blocks)
	default:
		c.blocks = blocks.None()
	}
	c.keepHeld(written, body)
	c.doubt, c.opening = nil, nil
}

// settle finds out by one read whether the write in doubt took effect. If the read
// fails, the write stays in doubt.
func (c *Claim) settle(ctx context.Context) (effective bool, err error) {
	if c.lost != nil {
		return false, c.lost
	}
	if c.doubt == nil {
		return false, nil
	}
	found, err := c.store.find(ctx, c.delivery.ID)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether save %d of job %s was stored: %w", c.doubt.attempt.Write, c.delivery.ID, err)
	}
	switch ruling := OnConflict(found, c.delivery, c.doubt.attempt); ruling {
	case Effective:
		c.adopt(c.doubt.next, found.ETag, c.doubt.content)
		return true, nil
	case Repeat:
		c.refresh(*found)
		c.doubt = nil
		return false, nil
	case Create:
		c.recreate()
		return false, nil
	default:
		return false, c.conflict(ruling, *found)
	}
}

// Check reads the record and returns a [*ConflictError] if this claim does not own it
// any more, because somebody else wrote it. It writes nothing. Any other error says
// that the record could not be read. A claim that has not written yet owns a record
// that does not exist.
func (c *Claim) Check(ctx context.Context) error {
	unlock, err := c.lockSettled(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := c.store.find(ctx, c.delivery.ID)
	if err != nil || found == nil {
		return err
	}
	switch ruling := OnConflict(found, c.delivery, Attempt{Token: c.token, Write: c.number, Under: c.record.ETag}); ruling {
	case Effective, Repeat:
		return nil
	default:
		return c.conflict(ruling, *found)
	}
}

// conflict ends the claim, which writes nothing more.
func (c *Claim) conflict(ruling Ruling, found Record) error {
	c.lost = &ConflictError{Ruling: ruling, Record: found}
	return c.lost
}

// recreate makes the next write a create, since there is no record, or it was removed
// together with its state.
func (c *Claim) recreate() {
	r := c.record
	r.ETag, r.Size = "", 0
	r.clearState()
	c.ledgerBefore = c.ledgerBefore.WithoutProgress()
	r.Ledger.Useful = 0
	c.set(r)
	c.blocks, c.doubt, c.stepped = blocks.None(), nil, false
}

// refused reports whether the service certainly did not make the write, for a
// reason that no read and no retry can change: not a conflict, and not a fault of
// the service or the network.
func refused(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return false
	}
	switch response.StatusCode {
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestTimeout:
		return false
	case http.StatusNotFound:
		return !bloberror.HasCode(err, bloberror.BlobNotFound)
	}
	return response.StatusCode < http.StatusInternalServerError
}

// pause waits before a repeat; 0 is the first attempt, which waits for nothing.
func pause(ctx context.Context, repeat int) error {
	if repeat == 0 {
		return nil
	}
	return retry.Sleep(ctx, retry.Backoff{First: firstRepeat, Max: longestRepeat}.Delay(repeat))
}

// permanentRefusals are the errors by which the blob service refuses calls to one
// blob until somebody changes that blob. Retries within minutes do not help. Unlike
// a missing role or container, they do not concern other blobs.
var permanentRefusals = []bloberror.Code{
	bloberror.LeaseIDMissing,           // somebody holds a lease on it
	bloberror.BlobArchived,             // it is in the archive tier
	bloberror.BlobBeingRehydrated,      // it is being restored from there, for hours
	bloberror.BlobImmutableDueToPolicy, // a retention policy or a legal hold
	bloberror.InvalidBlobType,          // it is a page or append blob
	bloberror.SnapshotsPresent,         // it cannot be deleted before its snapshots
	bloberror.PendingCopyOperation,     // it is the target of a copy
	bloberror.BlobUsesCustomerSpecifiedEncryption,
}

// PermanentRefusals returns the codes that [PermanentRefusal] can return.
func PermanentRefusals() (codes []string) {
	for _, code := range permanentRefusals {
		codes = append(codes, string(code))
	}
	return codes
}

// PermanentRefusal returns the service's error code if err is a permanent refusal of
// one blob, and "" otherwise.
func PermanentRefusal(err error) string {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && slices.Contains(permanentRefusals, bloberror.Code(response.ErrorCode)) {
		return response.ErrorCode
	}
	return ""
}
