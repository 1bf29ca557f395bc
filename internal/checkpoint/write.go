package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

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
	base   *base    // the state that the body begins with, if later ones can be compared with it; or nil
}

// keeps reports whether the body stays as it is.
func (c content) keeps() bool { return c.data == nil && c.blocks == nil }

// change turns the current record into the one to write, and returns the new body.
// It may be applied more than once, each time to the record and the facts as they are then.
// The new status does not depend on the facts.
type change func(*Record, Facts) content

// unchanged is the change of a write that only acquires or creates the record.
func unchanged(*Record, Facts) content { return content{} }

// doubt is a write whose outcome is unknown.
type doubt struct {
	attempt Attempt
	next    Record
	content content
}

// ownership is the right of a claim to its record. It sends the writes one after another
// under the record's ETag, and settles conflicts and unknown outcomes.
type ownership struct {
	store    *Store
	delivery Delivery
	owner    string
	token    string

	// writing is a lock that can be waited for with a context: it holds one value while a
	// write is in flight. It guards the fields up to mu, and sender's fields.
	writing chan struct{}
	number  int // of the last write attempted
	doubt   *doubt
	lost    error

	// opening is the change that acquires the record. It is part of every write
	// until one takes effect; nil from then on, and where there was no record.
	opening func(*Record)

	accounting *accounting
	sender     *sender

	mu     sync.Mutex // guards record for readers; never held during a call
	record Record     // as last known; without an ETag while there is no record
}

// lock waits until no other write of this claim is in flight.
func (o *ownership) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case o.writing <- struct{}{}:
		return func() { <-o.writing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lockSettled waits like lock, and settles a write in doubt, so that the known record is
// the stored one, as far as this claim wrote it.
func (o *ownership) lockSettled(ctx context.Context) (unlock func(), err error) {
	if unlock, err = o.lock(ctx); err != nil {
		return nil, err
	}
	if _, err := o.settle(ctx); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// known returns the record as last known.
func (o *ownership) known() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record
}

// set replaces the known record. The caller holds the lock of writes, under which
// the record may be read without mu.
func (o *ownership) set(r Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record = r
}

// refresh replaces the known record with the one just read, still owned by this claim.
func (o *ownership) refresh(found Record) {
	if found.StateHash != o.record.StateHash {
		o.sender.forget() // an older write of ours arrived late
	}
	o.set(found)
}

// mayExist is [Claim.MayExist].
func (o *ownership) mayExist(ctx context.Context) bool {
	unlock, err := o.lock(ctx)
	if err != nil {
		return true
	}
	defer unlock()
	return o.record.ETag != "" || o.doubt != nil
}

// create creates the record if there is none.
func (o *ownership) create(ctx context.Context) error {
	if o.record.ETag != "" {
		return nil
	}
	return o.write(ctx, unchanged)
}

// write makes one change to the record. It first settles a write in doubt, and after
// a conflict or an unknown outcome lets one read decide. It returns nil once the
// change has taken effect, a [*ConflictError] if this claim does not own the record,
// and any other error if the outcome is unknown; the next write then settles it.
func (o *ownership) write(ctx context.Context, ch change) error {
	if _, err := o.settle(ctx); err != nil {
		return err
	}
	var err error
	for repeat := range maxRepeats {
		if err := pause(ctx, repeat); err != nil {
			return err
		}
		if over, err := o.hasEnded(ch); over {
			return err
		}
		if err = o.attempt(ctx, ch); err == nil {
			return nil
		}
		if o.doubt == nil {
			return fmt.Errorf("write record of job %s: %w", o.delivery.ID, err)
		}
		if effective, settleErr := o.settle(ctx); settleErr != nil {
			return settleErr
		} else if effective {
			return nil
		}
		if PermanentRefusal(err) != "" {
			return fmt.Errorf("write record of job %s: %w", o.delivery.ID, err)
		}
	}
	return fmt.Errorf("write record of job %s: gave up after %d repeats, the last: %w", o.delivery.ID, maxRepeats, err)
}

// hasEnded reports whether an earlier write ended the claim. A caller that did not
// learn of its success may repeat the same ending: it returns no error, and nothing
// is written, since that would count a failure or an interruption twice. Any other
// change is a conflict.
func (o *ownership) hasEnded(ch change) (over bool, err error) {
	if o.record.Status == Running || o.opening != nil {
		return false, nil
	}
	wanted := o.record
	ch(&wanted, Facts{})
	switch {
	case wanted.Status == o.record.Status:
		return true, nil
	case o.record.Status.Final():
		return true, o.conflict(Finish, o.record)
	default:
		return true, o.conflict(PutBack, o.record)
	}
}

// attempt sends the change once. Unless the outcome is certain it leaves the write in
// doubt.
func (o *ownership) attempt(ctx context.Context, ch change) error {
	o.number++
	next := o.record
	next.Version, next.Token, next.Write, next.Owner = Version, o.token, o.number, o.owner
	facts := o.accounting.factsOf(&next)
	next.RunTime, next.Log, next.Inputs, next.FollowUps = o.accounting.runTime(facts), facts.Log, facts.Inputs, facts.FollowUps
	next.Outputs = facts.Outputs
	if o.opening != nil {
		o.opening(&next)
	}
	body, err := o.sender.asBlockList(ctx, ch(&next, facts), o.record.ETag != "")
	o.accounting.account(&next, facts)
	next.trace(&o.record, o.accounting.ledgerBefore.Redone, time.Now())
	next.Charge = next.Status == Running && facts.Charge
	if err != nil {
		return err
	}
	etag, err := o.store.put(ctx, &next, o.record.ETag, body)
	if err == nil {
		o.adopt(next, etag, body)
		return nil
	}
	o.sender.uncommitted = bloberror.HasCode(err, bloberror.BlobAlreadyExists)
	if !refused(err) {
		o.doubt = &doubt{next: next, content: body, attempt: Attempt{Token: o.token, Write: o.number, Under: o.record.ETag}}
	}
	return err
}

// adopt makes a write that took effect the known record.
func (o *ownership) adopt(written Record, etag azcore.ETag, body content) {
	written.ETag = etag
	o.set(written)
	o.sender.recorded(body)
	o.doubt, o.opening = nil, nil
}

// settle finds out by one read whether the write in doubt took effect. If the read
// fails, the write stays in doubt.
func (o *ownership) settle(ctx context.Context) (effective bool, err error) {
	if o.lost != nil {
		return false, o.lost
	}
	if o.doubt == nil {
		return false, nil
	}
	found, err := o.store.find(ctx, o.delivery.ID)
	if err != nil {
		return false, fmt.Errorf("cannot tell whether save %d of job %s was stored: %w", o.doubt.attempt.Write, o.delivery.ID, err)
	}
	switch ruling := OnConflict(found, o.delivery, o.doubt.attempt); ruling {
	case Effective:
		o.adopt(o.doubt.next, found.ETag, o.doubt.content)
		return true, nil
	case Repeat:
		o.refresh(*found)
		o.doubt = nil
		return false, nil
	case Create:
		o.recreate()
		return false, nil
	default:
		return false, o.conflict(ruling, *found)
	}
}

// check is [Claim.Check].
func (o *ownership) check(ctx context.Context) error {
	unlock, err := o.lockSettled(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := o.store.find(ctx, o.delivery.ID)
	if err != nil || found == nil {
		return err
	}
	switch ruling := OnConflict(found, o.delivery, Attempt{Token: o.token, Write: o.number, Under: o.record.ETag}); ruling {
	case Effective, Repeat:
		return nil
	default:
		return o.conflict(ruling, *found)
	}
}

// conflict ends the claim, which writes nothing more.
func (o *ownership) conflict(ruling Ruling, found Record) error {
	o.lost = &ConflictError{Ruling: ruling, Record: found}
	return o.lost
}

// recreate makes the next write a create, since there is no record, or it was removed
// together with its state. Outputs that a running handler has are named again.
func (o *ownership) recreate() {
	r := o.record
	r.ETag, r.Size = "", 0
	r.clearState()
	o.accounting.ledgerBefore = o.accounting.ledgerBefore.WithoutProgress()
	r.Ledger.Useful = 0
	o.set(r)
	o.sender.removed()
	o.doubt = nil
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
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok && slices.Contains(permanentRefusals,
		bloberror.Code(response.ErrorCode)) {
		return response.ErrorCode
	}
	return ""
}
