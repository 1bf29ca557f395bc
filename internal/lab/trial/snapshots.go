package trial

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/text"
)

// Lines of a worker's log about a program that is frozen.
const (
	msgContinued     = "program continues from its snapshot"
	msgNotFrozen     = "no snapshot of the program: the one before stands, and the next is tried later"
	msgNotFrozenLast = "no last snapshot of the program; the one before stands"
)

// reasonNotFrozen begins the reason of a job whose program can never be frozen.
const reasonNotFrozen = "the program cannot be frozen (snapshot of its kind): "

// snapshotPrefix begins the name of a snapshot in the job's folder while it is taken.
const snapshotPrefix = "snapshot-"

// isSnapshot reports whether a path in the job's folder is a snapshot, or below one.
func isSnapshot(name string) bool { return strings.HasPrefix(name, snapshotPrefix) }

// checkSnapshots returns an error if the program is frozen and this machine cannot do that. It
// says why and what to do.
func (t *trial) checkSnapshots(ctx context.Context) error {
	if !t.program.snapshot {
		return nil
	}
	if err := lab.CheckSnapshots(ctx, t.folder); err != nil {
		return fmt.Errorf("%w: %w", ErrNotTried, err)
	}
	return nil
}

// outside keeps the VMs' writes outside of the job's folder apart. A program on an overlay
// cannot be frozen, so there is nil and a reason for one that is frozen.
func (t *trial) outside(ctx context.Context) (o *outside, unknown string) {
	if t.program.snapshot {
		return nil, "CRIU cannot freeze programs on the file systems that would tell"
	}
	return newOutside(ctx, t.folder)
}

// snapshotChanged is about a snapshot while it is taken. The caller holds the lock.
func (r *recorder) snapshotChanged(vm string, c fileChange) (act func(string)) {
	switch {
	case strings.Contains(c.name, "/"):
	case c.op == created:
		return r.saving(vm, c)
	case c.op == removed:
		delete(r.writing[vm], c.name)
	}
	return nil
}

// tellFreeze describes the end of a run whose program is frozen.
func (r *programRun) tellFreeze() string {
	switch {
	case r.Exit == "" || r.Stop.IsZero():
		return ""
	case r.isFrozenLate(LongestGrace):
		return fmt.Sprintf(" It was not frozen within %s and was killed.", text.Duration(r.stopped()))
	case r.Killed && r.Unfrozen != "":
		return fmt.Sprintf(" It was not frozen: %s.", r.Unfrozen)
	}
	return fmt.Sprintf(" It was frozen in %s.", text.Duration(r.stopped()))
}

// snapshotAdvice is where a user finds what CRIU keeps.
const snapshotAdvice = `docs/jobs.md ("Programs that cannot be changed") has what CRIU keeps and what it does not.`

// cannotFreeze adds a finding if a job failed because its program can never be frozen.
func (f *findings) cannotFreeze(c *course) bool {
	_, why, found := strings.Cut(c.Reason, reasonNotFrozen)
	if found {
		f.add("not-frozen", Problem, snapshotAdvice, "it cannot be frozen: %s", why)
	}
	return found
}

// ofSnapshots is about a program that is frozen. It writes no checkpoints, gets no signal, and
// cannot ignore its snapshot.
func (f *findings) ofSnapshots(c Config, seen observed) {
	job := seen.evicted
	if job == nil {
		return
	}
	unfrozen := ""
	for _, r := range job.Runs {
		if r.Strike != nil && r.isFrozenLate(c.Grace) {
			f.once("late-save", Problem, "Give it less memory, or the worker a faster disk: what is not frozen in time is lost, and the snapshot "+
				"before stands.",
				"it was not frozen within %s, of %s that an eviction leaves it", text.Duration(r.stopped()), text.Duration(c.Grace))
		} else if r.Unfrozen != "" {
			unfrozen = r.Unfrozen
		}
	}
	switch {
	case unfrozen == "":
	case len(job.saves()) == 0:
		f.add("not-frozen", Problem, snapshotAdvice, "no snapshot was taken, so that it starts from the beginning after every eviction: %s",
			unfrozen)
	default:
		f.add("not-always-frozen", Warning, snapshotAdvice, "one of its snapshots was not taken, and the one before stood: %s", unfrozen)
	}
	f.frozenOutcome(c, seen)
}

// isFrozenLate reports whether a stop left the program too little time. It is killed some
// milliseconds before its time is over.
func (r *programRun) isFrozenLate(grace time.Duration) bool {
	const early = 100 * time.Millisecond
	took := r.stopped()
	return !r.Stop.IsZero() && r.Exit != "" && (took > grace || r.Killed && took > grace-early)
}

// frozenOutcome compares the end of an evicted program that is frozen with the undisturbed one.
func (f *findings) frozenOutcome(c Config, seen observed) {
	job := seen.evicted
	switch {
	case job.Ended.IsZero() && seen.gaveUp != "":
		f.add("not-finished", Problem, "If it waits for something outside of the job, take that out. If it is evicted before it gets further, "+
			"give --every a longer time.", "%s", seen.gaveUp)
	case job.Ended.IsZero() || !job.Done && f.cannotFreeze(job):
	case !job.Done && lastRun(job).Resumed:
		f.add("cannot-resume", Problem, snapshotAdvice, "it failed after it was continued from its snapshot: %s", failureOf(job))
	case !job.Done:
		f.add("cannot-restart", Problem, snapshotAdvice, "it failed when it was started again: %s", failureOf(job))
	default:
		if what := differ(c, job, seen.plain[len(seen.plain)-1]); what != "" {
			f.add("result-differs", Problem, "It depends on something that is no part of a snapshot: a clock, a file outside of its folder, "+
				"another process. "+snapshotAdvice, "evicted and undisturbed runs differ: %s", what)
		}
	}
}
