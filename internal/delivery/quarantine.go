package delivery

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// An unclean exit is a claim of a record that ended with neither release nor failure nor
// progress: its VM or its worker died. The next claim finds only the record, and cannot
// tell a job that kills its worker from a VM that dies anyway. So with each write of the
// record its owner decides whether an exit after it would be charged to the job
// (chargeable).
//
//	                      exit charged?
//	claim ── 10 s ───────────────────────────▶
//	  │ worker steady: yes     yes, unless a new state was reported
//	  │ else: no               and could not be saved yet
//
// Exits that are not charged are early. Where VMs die within seconds all exits are early,
// and after the first a job is saved as soon as it reports. A job that kills its worker
// at once also causes early exits; so after some of them only steady workers start the
// job, and those charge it.
const (
	// quarantineAfter unclean exits in a row put a job in quarantine: it may have
	// killed its worker. A worker runs one such job at a time.
	quarantineAfter = 3

	// After steadyAfter early exits in a row a job is started only by a steady worker,
	// which has run for steadyFor.
	steadyAfter = 5
	steadyFor   = time.Minute

	// chargeAfter is how long a handler may run without a new state until an exit is
	// charged. The first touch of a claim is due then, so that this is recorded.
	chargeAfter = 10 * time.Second

	// maxChargedExits charged exits in a row end a job in the poison queue, and so do
	// maxEarlyExits early ones: of a job whose state takes longer to save than any
	// of its VMs lived.
	maxChargedExits = 10
	maxEarlyExits   = 50
)

// chargeable reports whether an unclean exit is the job's own, as of a write by a
// worker that was steady at the claim, or not, and whose handler has run for so
// long. A job that reported a state which is not saved yet is not to blame.
func chargeable(steady bool, ran time.Duration, unsaved bool) bool {
	return !unsaved && (steady || ran >= chargeAfter)
}

// exhausted returns why a job with that many unclean exits in a row is not started any
// more; it is empty if the job may be started.
func exhausted(charged, early int) string {
	switch {
	case charged >= maxChargedExits:
		return fmt.Sprintf("%d unclean exits in a row without progress: the job may be killing its worker, most often by its use of memory",
			charged)
	case early >= maxEarlyExits:
		return fmt.Sprintf("%d unclean exits in a row before a state could be saved: "+
			"saving takes longer than the job's VMs lived, or the job may be killing its worker", early)
	}
	return ""
}

// enterQuarantine lets one quarantined job at a time run, so that a job that kills its process does
// not kill its neighbours' runs again and again. If entered, the delivery holds the worker's place
// for such a job until its end.
func (c *claimed) enterQuarantine(f *found) (entered bool, out *outcome) {
	charged, early := checkpoint.UncleanExits(f.record, c.ref())
	if charged+early < quarantineAfter || exhausted(charged, early) != "" {
		return false, nil
	}
	select {
	case c.env.quarantine <- struct{}{}:
		c.log.Warn("job is in quarantine, one such job runs at a time: the last workers died while they ran it", "unclean_exits", charged,
			"early_exits", early)
		return true, nil
	default:
		return false, c.later(NotRun, "another job in quarantine is running on this worker")
	}
}
