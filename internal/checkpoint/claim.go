package checkpoint

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Claim is one delivery's right to write one record. It lasts until the record
// is claimed by another; from then on every write returns a [*ConflictError].
// Its methods may be called from several goroutines; the writes go one after
// another.
type Claim struct {
	store    *Store
	delivery Delivery
	owner    string
	token    string

	// writing holds one value while a write is under way. What follows up to mu
	// belongs to whoever put it there.
	writing chan struct{}
	number  int // of the last write attempted
	doubt   *doubt
	lost    error
	blocks  blockSet

	// uncommittedBlocks says that a create was refused because blocks were staged
	// where there is no record.
	uncommittedBlocks bool

	// opening is the change that takes the record over. It goes along with
	// every write until one took effect; nil then, and where there was no record.
	opening func(*Record)

	runTimeBefore time.Duration // for the job before this claim

	mu          sync.Mutex            // guards what follows; never held during a call
	handlerTime func() time.Duration  // by this claim's handler so far; nil before it is called
	charge      func() bool           // see ChargeExits; nil before the handler is called
	record      Record                // as it stands, as far as is known; no ETag while there is none
	begun       string                // the state's hash when the claim began
	readers     map[*stateReader]bool // of the recorded state, that are open
	machine     string                // that a failure happens on
	repeat      bool                  // a failure counts as one with the last
}

// lock waits for this claim's turn to write, and returns what ends it.
func (c *Claim) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.writing <- struct{}{}:
		return func() { <-c.writing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refresh takes over the record as it was read: it is still this claim's.
func (c *Claim) refresh(found Record) {
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

// Acquire claims a record that the delivery may claim ([Acquire]): one write of the
// metadata gives it a new ETag and with that fences every earlier owner, and
// leaves the state alone. If the outcome of that write is not known, the claim's
// next write settles it.
func (s *Store) Acquire(ctx context.Context, d Delivery, found Record, owner string) (*Claim, error) {
	c := s.newClaim(d, owner, found)
	c.opening = func(r *Record) {
		r.ChargedExits, r.EarlyExits = UncleanExits(found, d)
		r.Kind, r.PayloadHash, r.MessageID = d.Kind, d.PayloadHash, d.MessageID
		r.Status, r.Generation, r.Progressed = Running, found.Generation+1, false
		r.ClaimedAt, r.EndedAt = time.Now(), time.Time{}
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return c, err
	}
	defer unlock()
	return c, c.write(ctx, unchanged)
}

func (s *Store) newClaim(d Delivery, owner string, r Record) *Claim {
	c := &Claim{
		store: s, delivery: d, owner: owner, token: uuid.NewString(),
		writing: make(chan struct{}, 1), record: r, runTimeBefore: r.RunTime, begun: r.StateHash, readers: map[*stateReader]bool{},
	}
	if r.StateBlocks == 0 {
		c.blocks = noBlocks()
	}
	return c
}

// UncleanExits returns the unclean exits in a row, charged to the job and early
// ones, of a job whose record a delivery found: one more than recorded if the
// claim that is recorded as running was the delivery's own message's, and made no
// progress. Whether it is charged was decided by that claim with its last write.
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
	c.handlerTime = spent
}

// ChargeExits makes every write from now on ask charge whether an unclean exit
// after it, without another write, is the job's own. Before, it is where the
// worker is steady ([Delivery]). Nothing can be written in the moment of the
// exit itself, so each write decides for the time that follows it.
func (c *Claim) ChargeExits(charge func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.charge = charge
}

// charged is what the next write says about an unclean exit after it.
func (c *Claim) charged() bool {
	c.mu.Lock()
	charge := c.charge
	c.mu.Unlock()
	if charge == nil {
		return c.delivery.Steady
	}
	return charge()
}

// RunTime returns the time that handlers took for the job up to now, over all
// deliveries, as far as it was recorded.
func (c *Claim) RunTime() time.Duration {
	c.mu.Lock()
	spent := c.handlerTime
	c.mu.Unlock()
	if spent == nil {
		return c.runTimeBefore
	}
	return c.runTimeBefore + spent()
}

// FailsOn says on which machine a failure of this claim happens. A repeat is one
// that the last failure happened on too, and of which it is not known whether it is
// the machine or the job that is at fault: the two then count as one.
func (c *Claim) FailsOn(machine string, repeat bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine, c.repeat = machine, repeat
}

func (c *Claim) failureMachine() (machine string, repeat bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine, c.repeat
}

// Exists reports whether this claim knows of a record in storage.
func (c *Claim) Exists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ETag != ""
}
