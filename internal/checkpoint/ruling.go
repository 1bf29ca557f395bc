package checkpoint

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// StaleAfter is how long a running record that another message owns must not
// have been written before a duplicate takes it over. A running job touches its
// record far more often ([Policy]).
const StaleAfter = time.Hour

// Delivery is one message in hand, as far as the rules of its record need it.
type Delivery struct {
	ID          string // the job's id
	Kind        string
	PayloadHash string // SHA-256 of the payload, in hex
	MessageID   string // the service's id of the message

	// Steady says that the worker which has the message has run for a while, so
	// that its end soon after a claim would be charged to the job.
	Steady bool
}

// Ruling says what a delivery may do, given the record it found.
type Ruling int

// The rulings. OnDelivery gives those up to Unreadable, OnConflict all but Take.
const (
	// Create: there is no record. Create it before working, so that an earlier
	// holder that is only frozen is fenced.
	Create Ruling = iota + 1

	// Take: the record is this message's to claim.
	Acquire

	// Finish: the job is over. Do what is left to do and delete the message.
	Finish

	// PutBack: the job is in another message's hands. Put this one back.
	PutBack

	// Mismatch: the id was used for other work. This message is poison; the
	// record stays untouched.
	Mismatch

	// Unreadable: a newer version's record, or no record of ours. Touch
	// nothing, put the message back.
	Unreadable

	// Effective: the write in question took effect.
	Effective

	// Repeat: the write in question did not take effect, and may be repeated
	// on the record as it was read.
	Repeat

	// Fenced: this message's record was claimed anew. Stop and touch nothing.
	Fenced
)

// OnDelivery rules on a record that a delivery found before it did any work.
// found is nil when there is none; now is the service's own clock.
func OnDelivery(found *Record, d Delivery, now time.Time) Ruling {
	switch {
	case found == nil:
		return Create
	case found.Version != Version:
		return Unreadable
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

// Attempt is a write whose effect is in question.
type Attempt struct {
	Token string
	Write int
	Under azcore.ETag // the ETag it was conditional on; empty for a create
}

// OnConflict rules on the one read after a refused condition or an unknown
// outcome. found is nil when there is no record.
//
// The same token alone proves nothing: a commit that never arrived would look
// like one that did. Hence the number. An older write of the same claim that
// left the job running is the record this claim still holds; one that ended the
// claim is not.
func OnConflict(found *Record, d Delivery, a Attempt) Ruling {
	switch {
	case found == nil:
		return Create
	case found.Version != Version:
		return Unreadable
	case !found.sameWork(d):
		return Mismatch
	case found.Token == a.Token && found.Write == a.Write:
		return Effective
	case found.Token == a.Token && found.Write < a.Write && found.Status == Running:
		return Repeat
	case a.Under != "" && found.ETag == a.Under:
		// Nothing at all was written since the record was read: the attempt to
		// claim it may be made again, under the same condition.
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
	names := [...]string{"none", "create", "take", "finish", "put back", "mismatch", "unreadable", "effective", "repeat", "fenced"}
	if r < 0 || int(r) >= len(names) {
		return "unknown"
	}
	return names[r]
}
