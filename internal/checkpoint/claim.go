package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/google/uuid"
)

// ErrDamaged says that the state in a record is not the one that was saved.
var ErrDamaged = errors.New("recorded state is damaged")

// Claim is one delivery's right to write one record. It lasts until the record
// is claimed by another; from then on every write returns a [*ConflictError].
// Its methods may be called from several goroutines; the writes go one after
// another.
type Claim struct {
	store    *Store
	delivery Delivery
	owner    string
	token    string

	// turn holds one value while a write is under way. What follows up to mu
	// belongs to whoever put it there.
	turn   chan struct{}
	number int // of the last write attempted
	doubt  *doubt
	lost   error
	blocks blockSet

	// obstructed says that a create was refused because blocks were staged
	// where there is no record.
	obstructed bool

	// opening is the change that takes the record over. It goes along with
	// every write until one took effect; nil then, and where there was no record.
	opening func(*Record)

	paid time.Duration // for the job before this claim

	mu      sync.Mutex            // guards what follows; never held during a call
	spent   func() time.Duration  // by this claim's handler so far; nil before it is called
	record  Record                // as it stands, as far as is known; no ETag while there is none
	begun   string                // the state's hash when the claim began
	readers map[*stateReader]bool // of the recorded state, that are open
}

// enter waits for this claim's turn to write, and returns what ends it.
func (c *Claim) enter(ctx context.Context) (leave func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// follow takes over the record as it was read: it is still this claim's.
func (c *Claim) follow(found Record) {
	if found.StateHash != c.record.StateHash {
		c.blocks.forget() // an older write of ours arrived late
	}
	c.set(found)
}

// set replaces what is known of the record. Only whoever has the turn does that,
// and may read the record without mu.
func (c *Claim) set(r Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = r
}

// Fresh returns the claim of a first delivery. It reads and writes nothing: the
// first write is a create, and finds out whether somebody was before it.
func (s *Store) Fresh(d Delivery, owner string) *Claim {
	now := time.Now()
	return s.newClaim(d, owner, Record{
		ID: d.ID, Kind: d.Kind, PayloadHash: d.PayloadHash, MessageID: d.MessageID,
		Status: Running, Generation: 1, CreatedAt: now, ClaimedAt: now,
	})
}

// Create creates the record of a delivery that found none ([Create]).
func (s *Store) Create(ctx context.Context, d Delivery, owner string) (*Claim, error) {
	c := s.Fresh(d, owner)
	return c, c.Touch(ctx, Snapshot{})
}

// Take claims a record that the delivery may claim ([Take]): one write of the
// metadata gives it a new ETag and with that fences every earlier owner, and
// leaves the state alone. If the outcome of that write is not known, the claim's
// next write settles it.
func (s *Store) Take(ctx context.Context, d Delivery, found Record, owner string) (*Claim, error) {
	c := s.newClaim(d, owner, found)
	c.opening = func(r *Record) {
		r.SilentEnds = SilentEnds(found, d)
		r.Kind, r.PayloadHash, r.MessageID = d.Kind, d.PayloadHash, d.MessageID
		r.Status, r.Generation, r.Progressed = Running, found.Generation+1, false
		r.ClaimedAt, r.EndedAt = time.Now(), time.Time{}
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return c, err
	}
	defer leave()
	return c, c.write(ctx, unchanged)
}

func (s *Store) newClaim(d Delivery, owner string, r Record) *Claim {
	c := &Claim{
		store: s, delivery: d, owner: owner, token: uuid.NewString(),
		turn: make(chan struct{}, 1), record: r, paid: r.Paid, begun: r.StateHash, readers: map[*stateReader]bool{},
	}
	if r.StateBlocks == 0 {
		c.blocks = noBlocks()
	}
	return c
}

// SilentEnds returns the silent ends in a row of a job whose record a delivery
// found: one more than recorded when the claim that is recorded as running was
// the delivery's own message's, and left nothing behind.
func SilentEnds(found Record, d Delivery) int {
	if found.Status == Running && found.MessageID == d.MessageID && !found.Progressed {
		return found.SilentEnds + 1
	}
	return found.SilentEnds
}

// Record returns the record as it stands, as far as this claim knows.
func (c *Claim) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record
}

// CountTime makes every write from now on record the time that spent returns,
// that of this claim's handler so far, on top of what the job was paid before.
func (c *Claim) CountTime(spent func() time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent = spent
}

// Paid returns the time that handlers took for the job up to now, over all
// deliveries, as far as it was recorded.
func (c *Claim) Paid() time.Duration {
	c.mu.Lock()
	spent := c.spent
	c.mu.Unlock()
	if spent == nil {
		return c.paid
	}
	return c.paid + spent()
}

// Exists reports whether this claim knows of a record in storage.
func (c *Claim) Exists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ETag != ""
}

// Restore returns the recorded state, or nil when there is none. A state that is
// kept in blocks comes as a stream that is read under ctx, see [Claim.Open]. The
// error wraps [ErrDamaged] when the state is not what was saved, and is a
// [*ConflictError] when the record was claimed anew.
func (c *Claim) Restore(ctx context.Context) (*Snapshot, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	switch r := c.record; {
	case !r.HasState():
		return nil, nil
	case r.StateBlocks > 0:
		open := func() (io.ReadCloser, error) { return c.open(ctx, r.StateHash) }
		return &Snapshot{Stream: open, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
	}
	state, err := c.store.body(ctx, c.record)
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		if err := c.displaced(ctx); err != nil {
			return nil, err
		}
		if !c.record.HasState() {
			return nil, nil
		}
		state, err = c.store.body(ctx, c.record)
	}
	if err != nil {
		return nil, err
	}
	r := c.record
	if hashOf(state) != r.StateHash {
		return nil, fmt.Errorf("%w: it has %d bytes, not the %d that were saved, or another hash", ErrDamaged, len(state), r.StateSize)
	}
	return &Snapshot{State: state, Version: r.StateVersion, Fraction: r.Fraction, Text: r.Text}, nil
}

// displaced decides by one read what a refused read of the state means. It
// returns nil when the record is still this claim's, under another ETag. A record
// that was removed is created again, without the state that went with it: the
// job starts afresh.
func (c *Claim) displaced(ctx context.Context) error {
	found, err := c.store.find(ctx, c.delivery.ID)
	switch {
	case err != nil:
		return err
	case found == nil:
		c.recreate()
		c.startAfresh()
		return c.write(ctx, unchanged)
	case found.Token == c.token:
		c.follow(*found)
		return nil
	}
	return c.conflict(OnConflict(found, c.delivery, Attempt{Token: c.token, Write: c.number}), *found)
}

// Save records the snapshot: state, fraction and text in one write.
func (c *Claim) Save(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s, func(r *Record) { r.Status = Running })
}

// Touch records that the job is being worked on, with fraction and text but
// without the state.
func (c *Claim) Touch(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s.WithoutState(), func(r *Record) { r.Status = Running })
}

// Commit ends the job with its result. From then on no other outcome is
// possible; the message is to be deleted next.
func (c *Claim) Commit(ctx context.Context, result []byte) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if c.isReading() {
		return ErrReading
	}
	if result == nil {
		result = []byte{} // an empty body, not "keep the one that is there"
	}
	return c.write(ctx, func(r *Record) content {
		r.Status, r.EndedAt = Done, time.Now()
		r.clearState()
		r.Fraction, r.Failures, r.SilentEnds, r.Reason = 1, 0, 0, ""
		return content{data: result}
	})
}

// Release opens the job to other workers after an interruption, with the last
// snapshot. A job that left no record and has no state to keep needs none.
func (c *Claim) Release(ctx context.Context, s Snapshot) error {
	if !s.HasState() && !c.written(ctx) {
		return nil
	}
	return c.update(ctx, s, func(r *Record) {
		r.Status = Open
		r.Interruptions++
		r.SilentEnds = 0
	})
}

// Fail opens the job to another attempt after a failure, with the last snapshot.
func (c *Claim) Fail(ctx context.Context, s Snapshot, reason string) error {
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.Reason = Open, reason
		r.Failures++
		r.SilentEnds = 0
	})
}

// Poison ends the job as one that cannot be done, with the last snapshot.
func (c *Claim) Poison(ctx context.Context, s Snapshot, reason string) error {
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.Reason, r.EndedAt = Poison, reason, time.Now()
	})
}

// written reports whether a record exists or may exist.
func (c *Claim) written(ctx context.Context) bool {
	leave, err := c.enter(ctx)
	if err != nil {
		return true
	}
	defer leave()
	return c.record.ETag != "" || c.doubt != nil
}

// update writes a snapshot and what apply makes of the rest.
func (c *Claim) update(ctx context.Context, s Snapshot, apply func(*Record)) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = c.updateOnce(ctx, s, apply)
	if bloberror.HasCode(err, bloberror.InvalidBlockList) {
		// What was known of the blocks was wrong: the record was removed, or
		// the service forgot staged ones. Find out, and send what is missing.
		c.blocks.forget()
		err = c.updateOnce(ctx, s, apply)
	}
	return err
}

func (c *Claim) updateOnce(ctx context.Context, s Snapshot, apply func(*Record)) error {
	if _, err := c.settle(ctx); err != nil {
		return err
	}
	if over, err := c.over(func(r *Record) content { apply(r); return content{} }); over {
		return err // before a state is sent for nothing
	}
	state, err := c.prepare(ctx, s)
	if err != nil {
		return err
	}
	return c.write(ctx, func(r *Record) (body content) {
		if state.hash != "" {
			r.StateVersion = s.Version
		}
		if state.hash != "" && state.hash != r.StateHash {
			body = state.content
			r.StateHash, r.StateSize, r.StateBlocks = state.hash, state.size, len(body.blocks)
		}
		if c.progressed(state.hash) {
			r.Progressed, r.Failures, r.SilentEnds = true, 0, 0
		}
		if s.Fraction != 0 || s.Text != "" {
			r.Fraction, r.Text = s.Fraction, s.Text
		}
		apply(r)
		return body
	})
}

// FailuresAfter returns what the count of failures in a row would be if the
// job failed now with this snapshot. A streamed state counts as progress only
// once it is saved.
func (c *Claim) FailuresAfter(s Snapshot) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.State != nil && hashOf(s.State) != c.begun {
		return 1
	}
	return c.record.Failures + 1
}

// progressed reports whether a state of that hash is progress: one that differs
// from the state the claim began with.
func (c *Claim) progressed(hash string) bool { return hash != "" && hash != c.begun }

// startAfresh forgets the state that the claim began with.
func (c *Claim) startAfresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = ""
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
