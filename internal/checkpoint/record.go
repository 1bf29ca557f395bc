package checkpoint

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/checkpoint/runs"
)

// Version is the version of the record format that this package reads and writes.
const Version = 1

// Status is the state of a job in its record.
type Status string

// The statuses of a record. The last three are final: only a replay opens Poison again, and
// only the job's owner any of them ([Store.Again]).
const (
	Open      Status = "open"      // no worker has it; its message will be delivered
	Running   Status = "running"   // the delivery named in the record runs it
	Done      Status = "done"      // committed; the body is the result
	Poison    Status = "poison"    // given up; the reason says why
	Cancelled Status = "cancelled" // cancelled by an operator
)

// Final reports whether the job has ended.
func (s Status) Final() bool { return s == Done || s == Poison || s == Cancelled }

func (s Status) known() bool { return s == Open || s == Running || s.Final() }

// Record is the stored record of one job. docs/FORMATS.md has its wire form.
type Record struct {
	// ID is the job's id.
	ID string

	// Version is [Version]; 0 for no record, and for a record that this version cannot read.
	Version int

	// Status is the job's state.
	Status Status

	// Kind and PayloadHash identify the work that the id stands for. Empty values,
	// as after a cancellation before any claim, match everything.
	Kind, PayloadHash string

	// Group is the group of jobs that the job belongs to; empty for none.
	Group string

	// MessageID is the message that owns the record.
	MessageID string

	// Token is the fencing token of the claim, or of the operator's write, that wrote
	// last. Write is the sequence number of that claim's write, from 1.
	Token string
	Write int

	// Generation counts the claims from 1, and the times that the job was put again.
	Generation int

	// Again is the Generation at which the job was last put again, to run from scratch; 0 if it
	// never was. Messages of an earlier run are obsolete ([Record.IsPast]).
	Again int

	// Failures counts failures in a row without progress. Failures on one machine may
	// count as one ([Failure]). FailuresTotal counts all failures.
	Failures, FailuresTotal int

	// Breaks counts the breaks in a row that the handler took without exceeding
	// Peak, the highest fraction that the job has had at a break.
	Breaks int
	Peak   float64

	// FailedBy is the machine on which the job failed last.
	FailedBy string

	// ChargedExits and EarlyExits count unclean exits in a row: claims that ended
	// without release, failure or progress, by a crash, a kill, or an eviction
	// without notice. ChargedExits are charged to the job; EarlyExits came too early
	// for that ([Facts]).
	ChargedExits, EarlyExits int

	// Charge says whether an unclean exit of the current claim is charged to the
	// job, if this was the claim's last write.
	Charge bool

	// Interruptions counts the releases of an interrupted job. They do not count
	// against it.
	Interruptions int

	// RunTime is how long handlers have run for the job, over all deliveries, as of
	// the last write, in whole milliseconds. Time between a worker's last write and
	// its crash is not included.
	RunTime time.Duration

	// Ledger is the job's cost up to the last write: see [Record.Spent].
	Ledger ledger.Ledger

	// NextWrite is the time within which the owner of a running job expects to write
	// again.
	NextWrite time.Duration

	// Deadline is when the job should be done, and Estimate how long its work takes on a
	// VM that nothing interrupts, in whole milliseconds; zero if its message does not say.
	Deadline time.Time
	Estimate time.Duration

	// MoveReason is why the last release moved the job to the on-demand queue, or
	// was to move it; empty if it did not.
	MoveReason string

	// Progressed says that the current claim stored a state that differs from
	// the one it began with.
	Progressed bool

	// StateHash is the hash of the state in the body, in hex; empty if the body holds none.
	// StateKey is the secret with which its MiBs are hashed ([blocks.Key]). StateSize is the
	// state's length in bytes, StateBlocks the number of its blocks (0 if it is in one piece),
	// StateVersion the handler's own number for its format.
	StateHash    string
	StateKey     blocks.Key
	StateSize    int64
	StateBlocks  int
	StateVersion int

	// Layout is where the body has the layout of the state, if the body is not the state itself.
	Layout blocks.Place

	// StateNeeds are the requirements of the state on a worker, as its handler reported them:
	// empty for any worker, and where the record had no room.
	StateNeeds string

	// Fraction (0 to 1) and Text are the handler's progress report for people.
	Fraction float64
	Text     string

	// Outputs names the list of the files that the job has stored for others. They are a
	// part of its state, or the whole of it where a handler reports none; once the job is
	// Done they are its outcome.
	Outputs Outputs

	// CreatedAt, ClaimedAt and EndedAt are the times of the first write, of the
	// current claim, and of the final status, by the writer's clock.
	CreatedAt, ClaimedAt, EndedAt time.Time

	// Owner is the worker that wrote last.
	Owner string

	// Reason is why the job failed last, or why it is poison or cancelled.
	Reason string

	// Log is the end of the job's own output, in the form of package joblog: at most
	// [MaxLog] bytes, percent-encoded.
	Log string

	// Inputs is the hash of the versions of blobs that the job's inputs were resolved to,
	// in hex; empty for a job without inputs.
	Inputs string

	// InputList are the inputs that the job's message names, as [PackInputs] returns them,
	// so that a message that is lost can be replaced.
	InputList string

	// FollowUps names the first jobs that the job's handler has put.
	FollowUps FollowUps

	// Runs are the last deliveries of the job, with their outcomes and saves.
	Runs runs.List

	// ETag, Size (of the body in bytes) and ModifiedAt are the service's, and
	// ReadAt is the service's own clock when the record was read.
	ETag       azcore.ETag
	Size       int64
	ModifiedAt time.Time
	ReadAt     time.Time

	// unknown holds metadata of newer versions, which is kept on a rewrite.
	unknown map[string]string
}

// Outputs names the list of a job's output files (package outputs). The zero value stands
// for no files.
type Outputs struct {
	Hash  string // of the list, in hex
	Files int
	Bytes int64 // of the files
}

// Claims returns how often the job was claimed since it was put, or put again.
func (r Record) Claims() int { return max(r.Generation-r.Again, 0) }

// IsPast reports whether a message with that number of its own ([Delivery]) belongs to an earlier
// run of the job, before its owner put it again.
func (r Record) IsPast(again int) bool { return again < r.Again }

// UncleanExits returns how many claims in a row ended uncleanly, charged or not.
func (r Record) UncleanExits() int { return r.ChargedExits + r.EarlyExits }

// clearExits resets the unclean exits: the last claim ended cleanly or made progress.
func (r *Record) clearExits() { r.ChargedExits, r.EarlyExits = 0, 0 }

// HasState reports whether the record's body holds a handler's state.
func (r Record) HasState() bool { return r.StateHash != "" && r.Status != Done }

// HasWork reports whether the next delivery continues from an earlier one's record: a
// state, or outputs.
func (r Record) HasWork() bool { return r.HasState() || r.Outputs.Hash != "" && r.Status != Done }

// InProgress reports whether a handler has worked on a job that has not ended.
func (r Record) InProgress() bool {
	return !r.Status.Final() && (r.HasState() || r.Fraction > 0 || r.RunTime > 0)
}

// Spent returns the job's cost, as of its last write.
func (r Record) Spent() ledger.Ledger {
	l := r.Ledger
	if r.Status == Cancelled || r.Status != Done && r.StateHash == "" {
		return l.WithoutProgress()
	}
	return l
}

// endLost adds to the ledger that the claim which is recorded as running ended uncleanly,
// that long after its last write.
func (r *Record) endLost(after time.Duration) {
	if r.Status != Running {
		return
	}
	r.Ledger.Exits++
	r.Ledger.Redone += after
	r.NextWrite = 0
}

// clearState records that the job has neither a state nor outputs.
func (r *Record) clearState() {
	r.StateHash, r.StateKey, r.StateSize, r.StateBlocks, r.StateVersion = "", "", 0, 0, 0
	r.Layout, r.StateNeeds = blocks.Place{}, ""
	r.Outputs = Outputs{}
}

// sameWork reports whether the record stands for the delivery's work.
func (r *Record) sameWork(d Delivery) bool {
	return matches(r.Kind, d.Kind) && matches(r.PayloadHash, d.PayloadHash)
}

func matches(recorded, delivered string) bool { return recorded == "" || recorded == delivered }

// PackInputs returns the JSON of the inputs that a message names, in the form in which a
// record has it: deflated, in base64. It is empty for no inputs, and for more than a record
// has room for.
func PackInputs(list []byte) string {
	if len(list) == 0 || len(list) > mostInputs {
		return ""
	}
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestCompression) // never fails: the level exists, and a buffer takes all
	_, _ = w.Write(list)
	_ = w.Close()
	if base64.RawStdEncoding.EncodedLen(packed.Len()) > maxInputList {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(packed.Bytes())
}

// UnpackInputs returns the JSON of the inputs that the job's message names, nil if the
// record does not have it.
func (r Record) UnpackInputs() []byte {
	packed, err := base64.RawStdEncoding.DecodeString(r.InputList)
	if err != nil {
		return nil
	}
	list, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), mostInputs+1))
	if err != nil || len(list) > mostInputs {
		return nil
	}
	return list
}

// mostInputs is the largest JSON of inputs, in bytes, as messages allow it.
const mostInputs = 24 << 10
