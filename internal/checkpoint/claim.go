package checkpoint

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/ledger"
)

// Claim is one delivery's right to write one record. It lasts until another
// delivery acquires the record; from then on every write returns a
// [*ConflictError]. Its methods may be called from several goroutines; the writes
// are sent one after another.
type Claim struct {
	store    *Store
	delivery Delivery
	owner    string
	token    string

	// writing is a lock that can be waited for with a context: it holds one value
	// while a write is in flight, and guards the fields up to mu.
	writing chan struct{}
	number  int // of the last write attempted
	doubt   *doubt
	lost    error
	blocks  blocks.Set

	keeps     bool   // see KeepPrevious; changed under mu too
	held      []byte // a state of one piece that the next save keeps as the one before it
	stepped   bool   // the recorded state is unusable, see StepBack
	stepsBack int    // of the job

	// uncommittedBlocks says that the service refused a create because the blob has
	// staged blocks but no record.
	uncommittedBlocks bool

	// opening is the change that acquires the record. It is part of every write
	// until one takes effect; nil from then on, and where there was no record.
	opening func(*Record)

	runTimeBefore time.Duration // for the job before this claim
	ledgerBefore  ledger.Ledger // of the job before this claim

	mu          sync.Mutex             // guards what follows; never held during a call
	handlerTime func() time.Duration   // by this claim's handler so far; nil before it is called
	spent       func() ledger.Delivery // see KeepLedger; nil before that
	nextWrite   func() time.Duration   // see ExpectWrites; nil for what the delivery said
	restoring   time.Time              // since when the recorded state is read; zero while it is not
	restored    time.Duration          // for how long it was read before that
	charge      func() bool            // see ChargeExits; nil before the handler is called
	logTail     func() string          // see CarryLog; nil for the log as it was found
	inputs      string                 // see SetInputs; empty for those as they were found
	outputs     *Outputs               // see CarryOutputs; nil for those that were found
	record      Record                 // as last known; without an ETag while there is no record
	begun       string                 // the state's hash when the claim began
	inUnits     bool                   // whether that is the hash of a state in blocks
	steppedTo   string                 // hash of the state that the claim stepped back to
	readers     map[*stateReader]bool  // open readers of the recorded state
	moveReason  *string                // see MovesFor; nil for the one that was found
	machine     string                 // where a failure of this claim happens
	repeat      bool                   // whether a failure counts as one with the last
}

// lock waits until no other write of this claim is in flight.
func (c *Claim) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.writing <- struct{}{}:
		return func() { <-c.writing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lockSettled waits like lock, and settles a write in doubt, so that the known record
// is what storage has, as far as this claim wrote it.
func (c *Claim) lockSettled(ctx context.Context) (unlock func(), err error) {
	if unlock, err = c.lock(ctx); err != nil {
		return nil, err
	}
	if _, err := c.settle(ctx); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// refresh replaces the known record with the one just read, still owned by this claim.
func (c *Claim) refresh(found Record) {
	if found.StateHash != c.record.StateHash {
		c.blocks = blocks.Set{} // an older write of ours arrived late
	}
	c.set(found)
}

// set replaces the known record. The caller holds the lock of writes, under which
// the record may be read without mu.
func (c *Claim) set(r Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = r
}

// Fresh returns the claim of a first delivery. It makes no call: the first write
// is a create, and fails if another delivery has created the record.
func (s *Store) Fresh(d Delivery, owner string) *Claim {
	now := time.Now()
	return s.newClaim(d, owner, Record{
		ID: d.ID, Kind: d.Kind, PayloadHash: d.PayloadHash, MessageID: d.MessageID,
		Status: Running, Generation: 1, CreatedAt: now, ClaimedAt: now, Deadline: d.Deadline, Estimate: d.Estimate,
		InputList: d.InputList,
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
	found.Ledger.Known = false // only of what readers are shown
	c := s.newClaim(d, owner, found)
	c.opening = func(r *Record) {
		r.ChargedExits, r.EarlyExits = UncleanExits(found, d)
		r.Kind, r.PayloadHash, r.MessageID = d.Kind, d.PayloadHash, d.MessageID
		r.Status, r.Generation, r.Progressed = Running, found.Generation+1, false
		r.ClaimedAt, r.EndedAt = time.Now(), time.Time{}
		r.Deadline, r.Estimate = d.Deadline, d.Estimate
		r.InputList = d.InputList
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
		writing: make(chan struct{}, 1), record: r, runTimeBefore: r.RunTime, ledgerBefore: r.Ledger, begun: r.StateHash, inUnits: r.StateBlocks > 0, stepsBack: r.StepsBack,
		readers: map[*stateReader]bool{},
	}
	if r.StateBlocks == 0 {
		c.blocks = blocks.None()
	}
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
func (c *Claim) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record
}

// UncleanExits returns that of [Claim.Record], without a copy of the rest.
func (c *Claim) UncleanExits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ChargedExits + c.record.EarlyExits
}

// CountTime makes every later write record the run time of this claim's handler,
// which spent returns, in addition to the job's run time before this claim.
func (c *Claim) CountTime(spent func() time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlerTime = spent
}

// KeepLedger makes every later write record what the job has cost, of which spent returns
// the part of this claim.
func (c *Claim) KeepLedger(spent func() ledger.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent = spent
}

// ExpectWrites makes every later write record the time within which this claim expects to
// write again, which next returns. If the worker dies, the next owner estimates from it
// how much work was lost.
func (c *Claim) ExpectWrites(next func() time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextWrite = next
}

// delivered returns what the claim has cost so far. The time in which the handler reads
// its recorded state does not count as the handler's.
func (c *Claim) delivered() (d ledger.Delivery, restored time.Duration) {
	c.mu.Lock()
	spent, restored := c.spent, c.restored
	if !c.restoring.IsZero() {
		restored += time.Since(c.restoring)
	}
	c.mu.Unlock()
	if spent == nil {
		return ledger.Delivery{}, 0
	}
	d = spent()
	d.Handler = max(d.Handler-restored, 0)
	return d, restored
}

// account makes the ledger of the next write. The change has set the useful time of the
// state that it records.
func (c *Claim) account(next *Record) {
	d, _ := c.delivered()
	saved := next.Ledger.Useful - c.ledgerBefore.Useful
	if next.Status == Done {
		saved = d.Handler
	}
	last, evictions := next.Status != Running, next.Ledger.Evictions
	next.Ledger = ledger.After(c.ledgerBefore, d, saved, last)
	next.Ledger.Evictions, next.Ledger.Known = evictions, false
	next.Ledgered = next.Generation
	next.NextWrite = 0
	if !last {
		next.NextWrite = c.expected()
	}
}

// expected is what the next write records as the time until the one after it.
func (c *Claim) expected() time.Duration {
	c.mu.Lock()
	next := c.nextWrite
	c.mu.Unlock()
	if next == nil {
		return c.delivery.NextWrite
	}
	return next()
}

// ChargeExits makes every later write record whether an unclean exit that follows
// it is charged to the job, which charge decides. Until ChargeExits is called, exits
// of steady workers ([Delivery]) are charged. A crashing worker cannot write, so
// each write decides in advance for the time until the next one.
func (c *Claim) ChargeExits(charge func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.charge = charge
}

// CarryLog makes every later write record the end of the job's log, which tail returns:
// at most [MaxLog] bytes, percent-encoded.
func (c *Claim) CarryLog(tail func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logTail = tail
}

// SetInputs makes every later write record what the job's inputs were resolved to.
func (c *Claim) SetInputs(hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inputs = hash
}

// inputsAfter returns the inputs for the next write of a record that has those before.
func (c *Claim) inputsAfter(before string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.inputs, before)
}

// CarryOutputs makes every later write record that the job has these outputs.
func (c *Claim) CarryOutputs(o Outputs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outputs = &o
}

// outputsAfter returns the outputs for the next write of a record that has those before.
func (c *Claim) outputsAfter(before Outputs) Outputs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outputs == nil {
		return before
	}
	return *c.outputs
}

// HasNewOutputs reports whether the next write changes the outputs of the record.
func (c *Claim) HasNewOutputs() bool { return c.outputsAfter(c.Record().Outputs) != c.Record().Outputs }

// Token is the fencing token of this claim.
func (c *Claim) Token() string { return c.token }

// logAfter returns the log for the next write of a record that has the log before.
func (c *Claim) logAfter(before string) string {
	c.mu.Lock()
	tail := c.logTail
	c.mu.Unlock()
	if tail == nil {
		return before
	}
	return tail()
}

// charged reports what the next write records about an unclean exit after it.
func (c *Claim) charged() bool {
	c.mu.Lock()
	charge := c.charge
	c.mu.Unlock()
	if charge == nil {
		return c.delivery.Steady
	}
	return charge()
}

// RunTime returns how long handlers have run for the job, over all deliveries, as
// far as it was recorded.
func (c *Claim) RunTime() time.Duration {
	c.mu.Lock()
	spent := c.handlerTime
	c.mu.Unlock()
	if spent == nil {
		return c.runTimeBefore
	}
	return c.runTimeBefore + spent()
}

// FailsOn sets the machine on which a failure of this claim would happen. With
// repeat, that is also the machine of the last failure, and it is unknown whether
// machine or job is at fault: the two failures then count as one.
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

// MovesFor sets why the release that follows moves the job to the on-demand queue; empty
// if it does not.
func (c *Claim) MovesFor(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveReason = &reason
}

// moveReasonAfter returns the reason for the next release of a record that has the reason
// before.
func (c *Claim) moveReasonAfter(before string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moveReason == nil {
		return before
	}
	return *c.moveReason
}

// Exists reports whether this claim knows of a record in storage.
func (c *Claim) Exists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.ETag != ""
}
