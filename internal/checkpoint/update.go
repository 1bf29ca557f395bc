package checkpoint

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Save records the snapshot: state, fraction and text, in one write.
func (c *Claim) Save(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s, false, func(r *Record, _ Facts) { r.Status = Running })
}

// Touch records that the job is running, with fraction and text but without the
// state.
func (c *Claim) Touch(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s.WithoutState(), false, func(r *Record, _ Facts) { r.Status = Running })
}

// Commit ends the job with its result. From then on no other outcome is possible;
// the caller deletes the message next.
func (c *Claim) Commit(ctx context.Context, result []byte) error {
	unlock, err := c.owned.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.restorer.readers.isReading() {
		return ErrReading
	}
	if result == nil {
		result = []byte{} // an empty body, not "keep the one that is there"
	}
	return c.owned.write(ctx, func(r *Record, f Facts) content {
		r.Status, r.EndedAt = Done, time.Now()
		r.clearState()
		r.Outputs = f.Outputs
		r.Fraction, r.Failures, r.Reason, r.FailedBy = 1, 0, "", ""
		r.Text = plaintext.Block(f.Text) // not that of the last save, which was of a part
		r.clearExits()
		return content{data: result}
	})
}

// Release makes the job available to other workers after an interruption, with its
// last snapshot. If the job has no record, no outputs, and the snapshot no state, it
// writes nothing.
func (c *Claim) Release(ctx context.Context, s Snapshot) error {
	if !s.HasState() && !c.bringsOutputs() && !c.MayExist(ctx) {
		return nil
	}
	return c.update(ctx, s, true, func(r *Record, f Facts) {
		r.Status, r.MoveReason = Open, f.MoveReason
		r.Interruptions++
		if f.Spent.Evicted {
			r.Ledger.Evictions = c.accounting.ledgerBefore.Evictions + 1
		}
		r.clearExits()
	})
}

// bringsOutputs reports whether a write without a state would change the outputs.
func (c *Claim) bringsOutputs() bool {
	r := c.Record()
	return c.HasNewOutputs(c.accounting.factsOf(&r).Outputs)
}

// Break makes the job available to other workers after its handler took a break,
// with its last snapshot. Unlike Release it always writes a record, so that breaks
// are counted.
func (c *Claim) Break(ctx context.Context, s Snapshot) error {
	return c.update(ctx, s, true, func(r *Record, _ Facts) {
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
	return c.update(ctx, s, true, func(r *Record, f Facts) {
		r.Status, r.Reason = Open, plaintext.Block(reason)
		r.addFailure(f.Failure)
		r.clearExits()
	})
}

// addFailure counts a failure.
func (r *Record) addFailure(f Failure) {
	r.FailedBy, r.Failures = f.Machine, countFailure(r.Failures, f.Repeat)
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
	return c.update(ctx, s, true, func(r *Record, _ Facts) {
		r.Status, r.Reason, r.EndedAt = Poison, plaintext.Block(reason), time.Now()
	})
}

// FailLast ends the job as [Poison] because it failed once too often. It counts that
// failure, as [Claim.Fail] does.
func (c *Claim) FailLast(ctx context.Context, s Snapshot, reason string) error {
	return c.update(ctx, s, true, func(r *Record, f Facts) {
		r.Status, r.Reason, r.EndedAt = Poison, plaintext.Block(reason), time.Now()
		r.addFailure(f.Failure)
	})
}

// update writes a snapshot and the changes that apply makes to the record. If last, the write
// ends the claim.
func (c *Claim) update(ctx context.Context, s Snapshot, last bool, apply func(*Record, Facts)) error {
	unlock, err := c.owned.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = c.updateOnce(ctx, s, last, apply)
	if bloberror.HasCode(err, bloberror.InvalidBlockList) {
		// The known blocks are wrong: the record was removed, or the service has
		// discarded staged blocks. List them again, and send the missing ones.
		c.sender.forget()
		err = c.updateOnce(ctx, s, last, apply)
	}
	return err
}

func (c *Claim) updateOnce(ctx context.Context, s Snapshot, last bool, apply func(*Record, Facts)) error {
	if _, err := c.owned.settle(ctx); err != nil {
		return err
	}
	if over, err := c.owned.hasEnded(func(r *Record, f Facts) content { apply(r, f); return content{} }); over {
		return err // before the state is uploaded in vain
	}
	state, err := c.prepare(ctx, s, last)
	if err != nil {
		return err
	}
	return c.owned.write(ctx, func(r *Record, f Facts) (body content) {
		if state.hash != "" {
			r.StateVersion, r.StateNeeds, r.Outputs = s.Version, needsOf(s), f.Outputs
		}
		body.base = state.content.base
		if state.hash != "" && state.hash != r.StateHash {
			body = state.content
			r.StateHash, r.StateKey = state.hash, state.key
			r.StateSize, r.StateBlocks, r.Layout = state.size, state.blocks, state.layout
			r.Ledger.Useful = c.accounting.useful(s.At)
		}
		if state.hash != "" && !c.baseline.has(state.hash) {
			r.Progressed, r.Failures = true, 0
			r.clearExits()
		}
		if c.HasNewOutputs(f.Outputs) { // a worker that stored a file did not die of the job's start
			r.Progressed = true
			r.clearExits()
		}
		if s.Fraction != 0 || s.Text != "" {
			r.Fraction, r.Text = s.Fraction, plaintext.Block(s.Text)
		}
		apply(r, f)
		return body
	})
}

// prepare makes a snapshot's state ready to be recorded.
func (c *Claim) prepare(ctx context.Context, s Snapshot, last bool) (prepared, error) {
	if !s.HasState() {
		return prepared{}, nil
	}
	if c.restorer.readers.isReading() {
		return prepared{}, ErrReading
	}
	return c.sender.prepare(ctx, s, c.owned.record.StateHash, last, c.owned.create)
}

// FailuresAfter returns the failures in a row if the job failed now with this
// snapshot. A streamed state counts as progress only once it is saved. repeat is
// [Failure.Repeat].
func (c *Claim) FailuresAfter(s Snapshot, repeat bool) int {
	if s.State != nil && !c.baseline.has(blocks.HashOf(s.State, c.sender.store.unit, c.baseline.key)) {
		return 1
	}
	return countFailure(c.Record().Failures, repeat)
}

// Attempts counts the attempts of a job that are limited.
type Attempts struct {
	Failures      int // in a row without progress
	FailuresTotal int
	Breaks        int // in a row without progress of the fraction
}

// After returns the counts if the job failed, or took a break, now with this
// snapshot. repeat is [Failure.Repeat].
func (c *Claim) After(s Snapshot, repeat bool) Attempts {
	r := c.Record()
	breaks, _ := breaksAfter(r, s.Fraction)
	return Attempts{Failures: c.FailuresAfter(s, repeat), FailuresTotal: r.FailuresTotal + 1, Breaks: breaks}
}

// baseline is the state with which the claim began: saving it again is no progress.
type baseline struct {
	mu    sync.Mutex
	begun string     // its hash
	key   blocks.Key // of the hash
}

// has reports whether a state is the same.
func (b *baseline) has(hash string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return hash == b.begun
}

// reset forgets the state with which the claim began.
func (b *baseline) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = ""
}
