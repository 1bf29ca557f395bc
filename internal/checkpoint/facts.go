package checkpoint

import (
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
)

// Facts are the values that a write of the record takes from its delivery. They change
// while the job runs.
type Facts struct {
	// RunTime is how long this claim's handler has run. A write adds the run time of
	// earlier claims.
	RunTime time.Duration

	// Spent is this claim's part of the job's cost.
	Spent ledger.Delivery

	// NextWrite is the time within which this claim expects to write again. If the worker
	// dies, the next owner estimates from it how much work was lost.
	NextWrite time.Duration

	// Charge says that an unclean exit after this write is charged to the job. A crashing
	// worker cannot write, so each write decides in advance for the time until the next
	// one.
	Charge bool

	// Log is the end of the job's log: at most [MaxLog] bytes, percent-encoded.
	Log string

	// Text is that of the handler's last report if the report was of the whole job.
	Text string

	// Inputs is the hash that the job's inputs were resolved to.
	Inputs string

	// Outputs are the outputs of the job.
	Outputs Outputs

	// FollowUps are the follow-up jobs that the job has put, the recorded ones included.
	FollowUps FollowUps

	// MoveReason is why a release moves the job to the on-demand queue; empty if it does
	// not.
	MoveReason string

	// Failure describes the failure that [Claim.Fail] and [Claim.FailLast] record.
	Failure Failure
}

// Failure describes one failure of a job. The zero value is a failure on an unknown machine.
type Failure struct {
	// Machine is where the job failed.
	Machine string

	// Repeat says that the last failure happened on this machine too, and that machine or
	// job may be at fault: the two failures count as one.
	Repeat bool
}

// accounting makes the values that every write records, for every change: the facts of
// the delivery, the job's run time and its ledger.
type accounting struct {
	nextWrite     time.Duration // see [Delivery]
	steady        bool          // see [Delivery]
	runTimeBefore time.Duration // for the job before this claim
	readers       *readers      // of the recorded state

	ledgerBefore ledger.Ledger // of the job before this claim; guarded by the lock of writes

	mu     sync.Mutex
	source func(found Facts) Facts // see [Claim.SetFacts]; nil before that
}

func (a *accounting) set(source func(found Facts) Facts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.source = source
}

// factsOf returns the facts of the next write of record r. The time in which the handler
// reads its recorded state does not count as the handler's in the ledger.
func (a *accounting) factsOf(r *Record) Facts {
	a.mu.Lock()
	source := a.source
	a.mu.Unlock()
	f := Facts{NextWrite: a.nextWrite, Charge: a.steady, Log: r.Log, Inputs: r.Inputs, Outputs: r.Outputs,
		FollowUps: r.FollowUps, MoveReason: r.MoveReason}
	if source != nil {
		f = source(f)
	}
	f.Spent.Handler = a.readers.without(f.Spent.Handler)
	return f
}

// runTime is the run time of the job at a write.
func (a *accounting) runTime(f Facts) time.Duration {
	return (a.runTimeBefore + f.RunTime).Truncate(time.Millisecond)
}

// useful is the job's useful time once a state is recorded that was reported when the
// handler had run for so long.
func (a *accounting) useful(at time.Duration) time.Duration {
	return a.ledgerBefore.Useful + a.readers.without(at)
}

// account sets the ledger of the next write, and the expected time until the write after
// it. The change has set the useful time of the recorded state.
func (a *accounting) account(next *Record, f Facts) {
	saved := next.Ledger.Useful - a.ledgerBefore.Useful
	if next.Status == Done {
		saved = f.Spent.Handler
	}
	last, evictions := next.Status != Running, next.Ledger.Evictions
	next.Ledger = ledger.After(a.ledgerBefore, f.Spent, saved, last)
	next.Ledger.Evictions = evictions
	next.NextWrite = 0
	if !last {
		next.NextWrite = f.NextWrite
	}
}
