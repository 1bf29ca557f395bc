package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/google/uuid"
)

// ErrDamaged says that the state in a record is not the one that was saved.
var ErrDamaged = errors.New("recorded state is damaged")

// Snapshot is what a handler reported, as it goes into a record.
type Snapshot struct {
	State    []byte // nil leaves the recorded state as it is
	Version  int    // the handler's number for the state's format
	Fraction float64
	Text     string
}

// Claim is one delivery's right to write one record. It lasts until the record
// is claimed by another; from then on every write returns a [*ConflictError].
// Its methods may be called from several goroutines; the writes go one after
// another.
type Claim struct {
	store    *Store
	delivery Delivery
	owner    string
	token    string

	mu     sync.Mutex
	record Record // as it stands, as far as is known; no ETag while there is none
	begun  string // the state's hash when the claim began
	number int    // of the last write attempted

	// opening is the change that takes the record over. It goes along with
	// every write until one took effect; nil then, and where there was no record.
	opening func(*Record)

	doubt *doubt
	lost  error
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c, c.write(ctx, unchanged)
}

func (s *Store) newClaim(d Delivery, owner string, r Record) *Claim {
	return &Claim{store: s, delivery: d, owner: owner, token: uuid.NewString(), record: r, begun: r.StateHash}
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

// Exists reports whether this claim knows of a record in storage.
func (c *Claim) Exists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ETag != ""
}

// Restore reads the recorded state, or nil when there is none. The error wraps
// [ErrDamaged] when it is not what was saved, and is a [*ConflictError] when
// the record was claimed anew.
func (c *Claim) Restore(ctx context.Context) (*Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.settle(ctx); err != nil {
		return nil, err
	}
	if !c.record.HasState() {
		return nil, nil
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
		c.record, c.begun = c.record.recreated(), ""
		return c.write(ctx, unchanged)
	case found.Token == c.token:
		c.record = *found
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
	s.State = nil
	return c.update(ctx, s, func(r *Record) { r.Status = Running })
}

// Commit ends the job with its result. From then on no other outcome is
// possible; the message is to be deleted next.
func (c *Claim) Commit(ctx context.Context, result []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if result == nil {
		result = []byte{} // an empty body, not "keep the one that is there"
	}
	return c.write(ctx, func(r *Record) []byte {
		r.Status, r.EndedAt = Done, time.Now()
		r.StateHash, r.StateSize, r.StateVersion = "", 0, 0
		r.Fraction, r.Failures, r.SilentEnds, r.Reason = 1, 0, 0, ""
		return result
	})
}

// Release opens the job to other workers after an interruption, with the last
// snapshot. A job that left no record and has no state to keep needs none.
func (c *Claim) Release(ctx context.Context, s Snapshot) error {
	if s.State == nil && !c.written() {
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
func (c *Claim) written() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ETag != "" || c.doubt != nil
}

// update writes a snapshot and what apply makes of the rest.
func (c *Claim) update(ctx context.Context, s Snapshot, apply func(*Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := s.hash()
	return c.write(ctx, func(r *Record) (body []byte) {
		if hash != "" {
			r.StateVersion = s.Version
		}
		if hash != "" && hash != r.StateHash {
			body = s.State
			r.StateHash, r.StateSize = hash, int64(len(s.State))
		}
		if c.progressed(hash) {
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
// job failed now with this snapshot.
func (c *Claim) FailuresAfter(s Snapshot) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.progressed(s.hash()) {
		return 1
	}
	return c.record.Failures + 1
}

// progressed reports whether a state of that hash is progress: one that differs
// from the state the claim began with.
func (c *Claim) progressed(hash string) bool { return hash != "" && hash != c.begun }

// hash returns the hash of the snapshot's state, empty when it has none.
func (s Snapshot) hash() string {
	if s.State == nil {
		return ""
	}
	return hashOf(s.State)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
