package ledger

import "time"

// Ledger is the cost of a job so far.
type Ledger struct {
	// Useful is the time of handlers whose progress survives: in the recorded state, or
	// in the result.
	Useful time.Duration

	// Redone is the time of handlers whose progress is lost: that after the last state
	// that was recorded, and all of it when the state is removed. Where a worker died
	// without notice, part of it is an estimate.
	Redone time.Duration

	// Overhead is all other time in a slot: waiting, fetching the payload, restoring the
	// state, and what follows the handler: the last save, commit or release.
	Overhead time.Duration

	// Evictions counts the releases because the platform announced the end of a VM, and
	// Exits the workers that ended uncleanly: evicted without notice, killed, crashed.
	Evictions, Exits int
}

// Total returns the time in slots.
func (l Ledger) Total() time.Duration { return l.Useful + l.Redone + l.Overhead }

// WithoutProgress returns the ledger of a job whose progress is gone.
func (l Ledger) WithoutProgress() Ledger {
	l.Useful, l.Redone = 0, l.Redone+l.Useful
	return l
}

// Delivery is the cost of one delivery so far. The zero value is a delivery that only
// begins.
type Delivery struct {
	Slot    time.Duration // since it got its slot
	Handler time.Duration // in the handler, without the time in which it read its state
	End     time.Duration // that the calls of its end usually take, from the last write on
	Evicted bool          // it was stopped because its VM goes
}

// After returns the ledger at a write of the delivery's record. before is the ledger when
// the delivery acquired the record, and saved the handler's time up to the report whose
// state is recorded. With last, the delivery ends with this write.
func After(before Ledger, d Delivery, saved time.Duration, last bool) Ledger {
	saved = min(max(saved, 0), d.Handler)
	l := before
	l.Useful += saved
	l.Redone += d.Handler - saved
	l.Overhead += max(d.Slot-d.Handler, 0)
	if last {
		l.Overhead += d.End
	}
	return l
}

// Takeover holds a delivery's facts about the owner that left a record running.
type Takeover struct {
	// Claimed is when this delivery claimed the message, counted from the last write of
	// the record. Visibility and RenewEvery are the message's under the earlier owner.
	// All are zero where they are not known: the message was another one.
	Claimed, Visibility, RenewEvery time.Duration
}

// Lost estimates how long the earlier owner lived after its last write. next is the time
// within which it would have written again, which that write states.
//
// Every moment in between is equally likely, so the estimate is the middle of the window
// in which it can have died: from the write to the next write, which did not come. The window
// is narrower where the message came back soon: its visibility timeout, counted from the
// last renewal, had expired when it was claimed, and the next renewal did not come. A
// message that waited long, since no worker was free, proves nothing. Neither does a
// message whose renewals are further apart than writes.
//
// The estimate is between 0 and next. Over many deaths it adds up, since it is as often too
// high as too low.
func (t Takeover) Lost(next time.Duration) time.Duration {
	if next <= t.RenewEvery || t.Visibility <= 0 {
		return next / 2
	}
	from := t.Claimed - t.Visibility
	to := from + t.RenewEvery
	switch {
	case to <= 0:
		return 0
	case from >= next:
		return next / 2
	}
	from, to = max(from, 0), min(to, next)
	return from + (to-from)/2
}
