package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/plaintext"
)

// Save records the snapshot: state, fraction and text, in one write.
func (c *Claim) Save(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s, func(r *Record) { r.Status = Running })
}

// Touch records that the job is running, with fraction and text but without the
// state.
func (c *Claim) Touch(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s.WithoutState(), func(r *Record) { r.Status = Running })
}

// Commit ends the job with its result. From then on no other outcome is possible;
// the caller deletes the message next.
func (c *Claim) Commit(ctx context.Context, result []byte) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.isReading() {
		return ErrReading
	}
	if result == nil {
		result = []byte{} // an empty body, not "keep the one that is there"
	}
	return c.write(ctx, func(r *Record) content {
		r.Status, r.EndedAt = Done, time.Now()
		r.clearState()
		r.Fraction, r.Failures, r.Reason, r.FailedBy = 1, 0, "", ""
		r.clearExits()
		return content{data: result}
	})
}

// Release makes the job available to other workers after an interruption, with its
// last snapshot. If the job has no record, no outputs, and the snapshot no state, it
// writes nothing.
func (c *Claim) Release(ctx context.Context, s Snapshot) error {
	if !s.HasState() && !c.HasNewOutputs() && !c.MayExist(ctx) {
		return nil
	}
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.MoveReason = Open, c.moveReasonAfter(r.MoveReason)
		r.Interruptions++
		if d, _ := c.delivered(); d.Evicted {
			r.Ledger.Evictions = c.ledgerBefore.Evictions + 1
		}
		r.clearExits()
	})
}

// Break makes the job available to other workers after its handler took a break,
// with its last snapshot. Unlike Release it always writes a record, so that breaks
// are counted.
func (c *Claim) Break(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s, func(r *Record) {
		r.Status = Open
		r.Interruptions++
		r.Breaks, r.Peak = breaksAfter(*r, s.Fraction)
		r.clearExits()
	})
}

// breaksAfter returns the breaks in a row without progress after one more break at
// that fraction, and the highest fraction at a break. Fractions are rounded to the
// four digits that a record keeps, so that smaller differences are not progress.
func breaksAfter(r Record, fraction float64) (breaks int, peak float64) {
	if at := math.Round(bounded(fraction)*1e4) / 1e4; at > r.Peak {
		return 0, at
	}
	return r.Breaks + 1, r.Peak
}

// Fail makes the job available for another attempt after a failure, with its last
// snapshot.
func (c *Claim) Fail(ctx context.Context, s Snapshot, reason string) error {
	machine, repeat := c.failureMachine()
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.Reason = Open, plaintext.Block(reason)
		r.addFailure(machine, repeat)
		r.clearExits()
	})
}

// addFailure counts a failure on a machine.
func (r *Record) addFailure(machine string, repeat bool) {
	r.FailedBy, r.Failures = machine, countFailure(r.Failures, repeat)
	r.FailuresTotal++
}

// countFailure returns the failures in a row after one more.
func countFailure(before int, repeat bool) int {
	if repeat && before > 0 {
		return before
	}
	return before + 1
}

// Poison ends the job as [Poison], with a reason and its last snapshot.
func (c *Claim) Poison(ctx context.Context, s Snapshot, reason string) error {
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.Reason, r.EndedAt = Poison, plaintext.Block(reason), time.Now()
	})
}

// FailLast ends the job as [Poison] because it failed once too often. It counts that
// failure, as [Claim.Fail] does.
func (c *Claim) FailLast(ctx context.Context, s Snapshot, reason string) error {
	machine, repeat := c.failureMachine()
	return c.update(ctx, s, func(r *Record) {
		r.Status, r.Reason, r.EndedAt = Poison, plaintext.Block(reason), time.Now()
		r.addFailure(machine, repeat)
	})
}

// update writes a snapshot and the changes that apply makes to the record.
func (c *Claim) update(ctx context.Context, s Snapshot, apply func(*Record)) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = c.updateOnce(ctx, s, apply)
	if bloberror.HasCode(err, bloberror.InvalidBlockList) {
		// The known blocks are wrong: the record was removed, or the service has
		// discarded staged blocks. List them again, and send what is missing.
		c.blocks = blocks.Set{}
		err = c.updateOnce(ctx, s, apply)
	}
	return err
}

func (c *Claim) updateOnce(ctx context.Context, s Snapshot, apply func(*Record)) error {
	if _, err := c.settle(ctx); err != nil {
		return err
	}
	if over, err := c.hasEnded(func(r *Record) content { apply(r); return content{} }); over {
		return err // before the state is uploaded in vain
	}
	state, err := c.prepare(ctx, s)
	if err != nil {
		return err
	}
	return c.write(ctx, func(r *Record) (body content) {
		if state.hash != "" {
			r.StateVersion = s.Version
		}
		if state.hash != "" && !state.is(r.StateHash) {
			body = state.content
			r.StateHash, r.StateSize, r.StateBlocks, r.Previous = state.hash, state.size, state.blocks, state.previous
			r.Ledger.Useful = c.ledgerBefore.Useful + c.withoutRestore(s.At)
		}
		if c.progressed(state) {
			r.Progressed, r.Failures = true, 0
			r.clearExits()
		}
		if c.HasNewOutputs() { // a worker that stored a file did not die of the job's start
			r.Progressed = true
			r.clearExits()
		}
		if s.Fraction != 0 || s.Text != "" {
			r.Fraction, r.Text = s.Fraction, plaintext.Block(s.Text)
		}
		apply(r)
		return body
	})
}

// MayExist reports whether a record exists, or may exist because the outcome of a write
// is unknown.
func (c *Claim) MayExist(ctx context.Context) bool {
	unlock, err := c.lock(ctx)
	if err != nil {
		return true
	}
	defer unlock()
	return c.record.ETag != "" || c.doubt != nil
}

// FailuresAfter returns the failures in a row if the job failed now with this
// snapshot. A streamed state counts as progress only once it is saved.
func (c *Claim) FailuresAfter(s Snapshot) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.State != nil && !c.startedWith(inOnePiece(s.State, c.hashUnit())) {
		return 1
	}
	return countFailure(c.record.Failures, c.repeat)
}

// Attempts counts the attempts of a job that are limited.
type Attempts struct {
	Failures      int // in a row without progress
	FailuresTotal int
	Breaks        int // in a row without progress of the fraction
}

// After returns the counts if the job failed, or took a break, now with this
// snapshot.
func (c *Claim) After(s Snapshot) Attempts {
	r := c.Record()
	breaks, _ := breaksAfter(r, s.Fraction)
	return Attempts{Failures: c.FailuresAfter(s), FailuresTotal: r.FailuresTotal + 1, Breaks: breaks}
}

// withoutRestore returns a time of the handler without that in which it read its recorded
// state.
func (c *Claim) withoutRestore(at time.Duration) time.Duration {
	_, restored := c.delivered()
	return max(at-restored, 0)
}

// progressed reports whether a state is progress: whether it differs from those with which
// the claim began.
func (c *Claim) progressed(p prepared) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.hash != "" && !c.startedWith(p)
}

// startedWith reports whether a state is the one with which the claim began, or to which it
// stepped back. The caller holds mu.
func (c *Claim) startedWith(p prepared) bool { return p.is(c.begun) || p.is(c.steppedTo) }

// hashUnit is the unit in which a state of one piece is hashed too, since the record may
// have its hash in that form; 0 if it has not.
func (c *Claim) hashUnit() int {
	if c.keeps || c.inUnits {
		return c.store.unit
	}
	return 0
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
