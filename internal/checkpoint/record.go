package checkpoint

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Version is the version of the record format that this package writes and reads.
const Version = 1

// Status says where a job is.
type Status string

// The statuses of a record. The last three are final: nothing is written over
// Done or Cancelled, and only a replay opens Poison again.
const (
	Open      Status = "open"      // nobody works on it; the message will bring it back
	Running   Status = "running"   // the delivery named in the record works on it
	Done      Status = "done"      // committed; the body is the result
	Poison    Status = "poison"    // given up; the reason says why
	Cancelled Status = "cancelled" // called off by its owner
)

// Final reports whether no delivery works on such a job any more.
func (s Status) Final() bool { return s == Done || s == Poison || s == Cancelled }

func (s Status) known() bool { return s == Open || s == Running || s.Final() }

// Record is what is known about one job. docs/FORMATS.md has its wire form.
type Record struct {
	// ID is the job's id.
	ID string

	// Version is the record's format version; 0 when it has none.
	Version int

	// Status says where the job is.
	Status Status

	// Kind and PayloadHash are the work that the id stands for. Empty ones, as
	// in a cancellation before any claim, match everything.
	Kind, PayloadHash string

	// MessageID is the message that owns the record.
	MessageID string

	// Token names the claim, or the outside write, that wrote last, and Write
	// numbers that claim's writes from 1.
	Token string
	Write int

	// Generation counts the claims from 1.
	Generation int

	// Failures counts failures in a row without progress, those of one machine
	// perhaps as one ([Claim.FailsOn]), and FailuresTotal all of them.
	Failures, FailuresTotal int

	// Breaks counts the breaks in a row that the handler took without a fraction
	// above Peak, the highest that the job has had at a break.
	Breaks int
	Peak   float64

	// FailedBy is the machine that the job failed on last.
	FailedBy string

	// ChargedExits and EarlyExits count unclean exits in a row: claims that ended
	// with neither release nor failure nor progress, by a crash, a kill, or an
	// eviction without notice. ChargedExits are those that are charged to the job,
	// EarlyExits those that came too early to be ([Claim.ChargeExits]).
	ChargedExits, EarlyExits int

	// Charge says that an unclean exit of the current claim would be charged to
	// the job if this was the claim's last write.
	Charge bool

	// Interruptions counts the releases of a job that was stopped. They cost
	// the job nothing.
	Interruptions int

	// RunTime is the time that handlers took for the job, over all deliveries, as of
	// the last write, in whole milliseconds. What a worker did between its last
	// write and its sudden death is not in it.
	RunTime time.Duration

	// Progressed says that the current claim stored a state that differs from
	// the one it began with.
	Progressed bool

	// StateHash tells the state in the body from others, in hex; empty when the
	// body holds none. It is the SHA-256 of the state, or of its chunks' SHA-256
	// when it is kept in blocks. StateSize is its length in bytes, StateBlocks
	// the number of its blocks (0 when it is in one piece), StateVersion the
	// handler's own number for its format.
	StateHash    string
	StateSize    int64
	StateBlocks  int
	StateVersion int

	// Fraction (0 to 1) and Text are the handler's report for humans.
	Fraction float64
	Text     string

	// CreatedAt, ClaimedAt and EndedAt are times of the writer's clock: of the
	// first write, of the current claim, and of the final status.
	CreatedAt, ClaimedAt, EndedAt time.Time

	// Owner is the worker that wrote last.
	Owner string

	// Reason says why the job failed last, or why it is poison or cancelled.
	Reason string

	// ETag, Size (of the body in bytes) and ModifiedAt are the service's, and
	// ReadAt is the service's own clock when the record was read.
	ETag       azcore.ETag
	Size       int64
	ModifiedAt time.Time
	ReadAt     time.Time

	// unknown holds metadata of newer versions' making, which survives a rewrite.
	unknown map[string]string
}

// UncleanExits is how many claims in a row ended uncleanly, charged or not.
func (r Record) UncleanExits() int { return r.ChargedExits + r.EarlyExits }

// clearExits says that the last claim ended well, or made progress.
func (r *Record) clearExits() { r.ChargedExits, r.EarlyExits = 0, 0 }

// HasState reports whether the record's body holds a handler's state.
func (r Record) HasState() bool { return r.StateHash != "" && r.Status != Done }

// InProgress reports whether a handler has worked on a job that is not over.
func (r Record) InProgress() bool {
	return !r.Status.Final() && (r.HasState() || r.Fraction > 0 || r.RunTime > 0)
}

// clearState says that the body holds no state.
func (r *Record) clearState() {
	r.StateHash, r.StateSize, r.StateBlocks, r.StateVersion = "", 0, 0, 0
}

// sameWork reports whether the record stands for the delivery's work.
func (r *Record) sameWork(d Delivery) bool {
	return matches(r.Kind, d.Kind) && matches(r.PayloadHash, d.PayloadHash)
}

func matches(recorded, delivered string) bool { return recorded == "" || recorded == delivered }
