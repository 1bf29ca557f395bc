package checkpoint

import (
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
)

// StaleAfter is the age at which a duplicate may acquire a running record that
// another message owns: the time since its last write. A running job touches its
// record far more often ([Policy]).
const StaleAfter = time.Hour

// Delivery describes one claimed message, as far as the rules of its record need it.
type Delivery struct {
	ID          string // the job's id
	Kind        string
	PayloadHash string // hash of payload and inputs: Envelope.Work of package queue
	MessageID   string // the service's id of the message

	// Again is the run of the job that the message belongs to, as in [Record]: [Newest] for the
	// current one.
	Again int

	// Group is the group of jobs that the message names; empty for none. It decides nothing
	// about the record, which keeps the group that it has.
	Group string

	// Deadline and Estimate are the job's, as its message has them; zero for none. They
	// are recorded for readers, and decide nothing about its record.
	Deadline time.Time
	Estimate time.Duration

	// InputList are the inputs that the message names, from [PackInputs]. They are recorded
	// for a message that replaces this one, and decide nothing.
	InputList string

	// Steady says that the worker which holds the message has run for a while, so
	// that an unclean exit soon after a claim is charged to the job.
	Steady bool

	// NextWrite is the time within which the worker expects to write again after its
	// first write. Takeover holds its facts about the owner before it. Both are for the
	// ledger alone.
	NextWrite time.Duration
	Takeover  ledger.Takeover
}

// Newest is the [Delivery.Again] of a message that is put next.
const Newest = math.MaxInt

// Ruling is the right of a delivery, given the record that it found.
type Ruling int

// The rulings. OnDelivery returns those up to Unreadable, OnConflict all but Acquire.
const (
	// Create: there is no record. Create it before working, so that an earlier
	// owner that is only frozen is fenced.
	Create Ruling = iota + 1

	// Acquire: the delivery may acquire the record.
	Acquire

	// Finish: the job has ended, or the message's run of it. Do the remaining cleanup and delete the message.
	Finish

	// PutBack: another message owns the job. Put this one back.
	PutBack

	// Mismatch: the id was used for other work. This message is poison; the
	// record stays untouched.
	Mismatch

	// Unreadable: the record is of a newer version or another program. Change
	// nothing, put the message back.
	Unreadable

	// Effective: the write in question took effect.
	Effective

	// Repeat: the write in question did not take effect, and may be repeated
	// on the record as it was read.
	Repeat

	// Fenced: a later delivery of this message has acquired the record. Stop, and
	// change nothing.
	Fenced
)

// OnDelivery rules on the record that a delivery found before it did any work.
// found is nil if there is none; now is by the service's clock.
func OnDelivery(found *Record, d Delivery, now time.Time) Ruling {
	switch {
	case found == nil:
		return Create
	case found.Version != Version:
		return Unreadable
	case found.IsPast(d.Again):
		return Finish
	case !found.sameWork(d):
		return Mismatch
	case found.Status.Final():
		return Finish
	case found.Status == Open:
		return Acquire
	case found.Status != Running:
		return Unreadable
	case found.MessageID == d.MessageID:
		return Acquire
	case now.Sub(found.ModifiedAt) >= StaleAfter:
		return Acquire
	default:
		return PutBack
	}
}

// Attempt identifies a write whose outcome is unknown.
type Attempt struct {
	Token string
	Write int
	Under azcore.ETag // the ETag it was conditional on; empty for a create
}

// OnConflict rules on the record that one read found after a refused condition or
// an unknown outcome. found is nil if there is none.
//
// The same token alone proves nothing: a commit that never arrived would look
// like a commit that did. Hence the sequence number. After an older write of the
// same claim that left the job running, the claim still owns the record; after a
// write that ended the claim, it does not.
func OnConflict(found *Record, d Delivery, a Attempt) Ruling { //nolint:cyclop // a table of cases
	switch {
	case found == nil:
		return Create
	case found.Version != Version:
		return Unreadable
	case found.IsPast(d.Again):
		return Finish
	case !found.sameWork(d):
		return Mismatch
	case found.Token == a.Token && found.Write == a.Write:
		return Effective
	case found.Token == a.Token && found.Write < a.Write && found.Status == Running:
		return Repeat
	case a.Under != "" && found.ETag == a.Under:
		// Nothing was written since the record was read: the attempt to acquire it
		// may be repeated, under the same condition.
		return Repeat
	case found.Status.Final():
		return Finish
	case !found.Status.known():
		return Unreadable
	case found.Status == Open, found.MessageID != d.MessageID:
		return PutBack
	default:
		return Fenced
	}
}

// String returns the ruling's name.
func (r Ruling) String() string {
	names := [...]string{"none", "create", "acquire", "finish", "put back", "mismatch", "unreadable", "effective", "repeat", "fenced"}
	if r < 0 || int(r) >= len(names) {
		return "unknown"
	}
	return names[r]
}
