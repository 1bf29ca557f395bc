package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

// Claim is one delivery's right to write one record. It lasts until another
// delivery acquires the record; from then on every write returns a
// [*ConflictError]. Its methods may be called from several goroutines; the writes
// are sent one after another.
type Claim struct {
	owned      ownership  // sends writes and settles conflicts
	accounting accounting // facts, run time and ledger of each write
	sender     sender     // sends states
	baseline   baseline   // the states that are no progress
	restorer   restorer   // reads and restores states
}

// Fresh returns the claim of a first delivery. It makes no call: the first write
// is a create, and fails if another delivery has created the record.
func (s *Store) Fresh(d Delivery, owner string) *Claim {
	now := time.Now()
	return s.newClaim(d, owner, Record{
		ID: d.ID, Kind: d.Kind, PayloadHash: d.PayloadHash, MessageID: d.MessageID,
		Status: Running, Generation: 1, CreatedAt: now, ClaimedAt: now, Deadline: d.Deadline, Estimate: d.Estimate,
		InputList: d.InputList, Group: d.Group,
	})
}

// Create creates the record of a delivery that found none ([Create]).
func (s *Store) Create(ctx context.Context, d Delivery, owner string) (*Claim, error) {
	c := s.Fresh(d, owner)
	return c, c.Touch(ctx, Snapshot{})
}

// Acquire makes the delivery the owner of a record that it may own ([Acquire]). One
// write of the metadata gives the record a new ETag, which fences every earlier
// owner, and leaves the state as it is. If the outcome of that write is unknown,
// the claim's next write settles it.
func (s *Store) Acquire(ctx context.Context, d Delivery, found Record, owner string) (*Claim, error) {
	before := found
	before.endLost(d.Takeover.Lost(found.NextWrite))
	found.Ledger = before.Spent()
	c := s.newClaim(d, owner, found)
	c.owned.opening = func(r *Record) {
		r.ChargedExits, r.EarlyExits = UncleanExits(found, d)
		r.Kind, r.PayloadHash, r.MessageID = d.Kind, d.PayloadHash, d.MessageID
		r.Status, r.Generation, r.Progressed = Running, found.Generation+1, false
		r.ClaimedAt, r.EndedAt = time.Now(), time.Time{}
		if found.Generation == 0 {
			r.CreatedAt = r.ClaimedAt // the job began now: deadlines are judged from here
		}
		r.Deadline, r.Estimate = d.Deadline, d.Estimate
		r.InputList, r.Group = d.InputList, cmp.Or(r.Group, d.Group)
		r.startOver()
		if found.Status == Running {
			r.Runs = found.runEnded(runs.Lost, found.ModifiedAt.Add(d.Takeover.Lost(found.NextWrite)))
		}
	}
	unlock, err := c.owned.lock(ctx)
	if err != nil {
		return c, err
	}
	defer unlock()
	return c, c.owned.write(ctx, unchanged)
}

// StartsOver is the text of the progress of a job that a worker claimed again and that has
// no state.
const StartsOver = "starts over: no state was kept"

// startOver removes the progress report of an earlier delivery if that delivery left no
// state: the next handler begins again.
func (r *Record) startOver() {
	if r.HasState() || r.Fraction == 0 && r.Text == "" {
		return
	}
	r.Fraction, r.Text = 0, StartsOver
}

func (s *Store) newClaim(d Delivery, owner string, r Record) *Claim {
	c := &Claim{}
	c.baseline.begun, c.baseline.key = r.StateHash, r.StateKey
	c.accounting = accounting{
		nextWrite: d.NextWrite, steady: d.Steady, runTimeBefore: r.RunTime, ledgerBefore: r.Ledger, readers: &c.restorer.readers,
	}
	c.sender = sender{
		store: s, id: d.ID, key: r.StateKey, keyed: r.StateHash != "",
	}
	if r.StateBlocks == 0 {
		c.sender.blocks = blocks.None()
	}
	c.owned = ownership{
		store: s, delivery: d, owner: owner, token: uuid.NewString(), writing: make(chan struct{}, 1), record: r,
		accounting: &c.accounting, sender: &c.sender,
	}
	c.restorer.owned, c.restorer.sender, c.restorer.baseline = &c.owned, &c.sender, &c.baseline
	c.restorer.readers.open = map[*stateReader]bool{}
	return c
}

// UncleanExits returns the unclean exits in a row, charged and early, of a job
// whose record a delivery found. It is one more than recorded if the claim that is
// recorded as running belongs to the delivery's own message and made no progress.
// That claim's last write decided whether the exit is charged to the job.
func UncleanExits(found Record, d Delivery) (charged, early int) {
	charged, early = found.ChargedExits, found.EarlyExits
	switch {
	case found.Status != Running || found.MessageID != d.MessageID || found.Progressed:
	case found.Charge:
		charged++
	default:
		early++
	}
	return charged, early
}

// Record returns the record as last known to this claim.
func (c *Claim) Record() Record { return c.owned.known() }

// UncleanExits returns [Record.UncleanExits] of the known record, without a copy of the
// rest.
func (c *Claim) UncleanExits() int {
	c.owned.mu.Lock()
	defer c.owned.mu.Unlock()
	return c.owned.record.UncleanExits()
}

// Exists reports whether this claim knows of a record in storage.
func (c *Claim) Exists() bool {
	c.owned.mu.Lock()
	defer c.owned.mu.Unlock()
	return c.owned.record.ETag != ""
}

// Token is the fencing token of this claim.
func (c *Claim) Token() string { return c.owned.token }

// HasNewOutputs reports whether the next write changes the outputs of the record to the
// current ones, even if the write has no state.
func (c *Claim) HasNewOutputs(current Outputs) bool {
	c.owned.mu.Lock()
	defer c.owned.mu.Unlock()
	return current != c.owned.record.Outputs
}

// EarlierRunTime returns how long handlers ran for the job before this claim, as far as
// that was recorded.
func (c *Claim) EarlierRunTime() time.Duration { return c.accounting.runTimeBefore }

// SetFacts makes every later write record the facts that source returns. A write calls
// source once for each attempt, and a release without a state also before. found has the
// values that the attempt records without source: the values of the record and of
// [Delivery]. source returns found with the values that it knows better. It must not write
// the record, since a write may be in flight.
func (c *Claim) SetFacts(source func(found Facts) Facts) { c.accounting.set(source) }

// Check reads the record and returns a [*ConflictError] if this claim does not own it
// now, because somebody else wrote it. It writes nothing. Any other error says
// that the record could not be read. A claim that has not written yet owns a record
// that does not exist.
func (c *Claim) Check(ctx context.Context) error { return c.owned.check(ctx) }

// MayExist reports whether a record exists, or may exist because the outcome of a write
// is unknown.
func (c *Claim) MayExist(ctx context.Context) bool { return c.owned.mayExist(ctx) }

// Restore returns the recorded state, or nil if there is none. A state that is kept in
// blocks is returned as a stream that is read under ctx, see [Claim.OpenState]. The error
// wraps [ErrDamaged] if the state differs from the saved state, and is a [*ConflictError]
// if another delivery has acquired the record.
func (c *Claim) Restore(ctx context.Context) (*Snapshot, error) { return c.restorer.restore(ctx) }

// OpenState returns the recorded state as a stream, or nil if there is none. Until
// the stream is at its end or closed, saves return [ErrReading]; touches do not.
//
// Corruption is always reported: the final Read returns an error that wraps
// [ErrDamaged] instead of the last bytes. Read returns a [*ConflictError] once
// another delivery has acquired the record, and [ErrReplaced] if the state was
// replaced otherwise. While storage is unavailable or denies access, Read retries
// until ctx ends.
func (c *Claim) OpenState(ctx context.Context) (io.ReadCloser, error) {
	s, err := c.Restore(ctx)
	switch {
	case s == nil:
		return nil, err
	case s.Stream != nil:
		return s.Stream()
	}
	return io.NopCloser(bytes.NewReader(s.State)), nil
}

// CloseReaders closes all readers of the recorded state: the handler has returned.
func (c *Claim) CloseReaders() { c.restorer.readers.close() }
