package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/breaker"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/job"
)

// listTimeout bounds the listing of heartbeats that a failed job waits for.
const listTimeout = 2 * time.Second

// enterBreaker asks the circuit breaker of the job's kind for a pass. If it returns false,
// the job is left to others.
func (d *Delivery) enterBreaker(ctx context.Context) bool {
	kind := d.envelope.Kind
	p, closed, ok := d.runner.breakers.Enter(kind, time.Now())
	switch {
	case !ok:
		d.out = outcome{action: skip, reason: fmt.Sprintf("the circuit breaker of kind %q is open on this worker", kind)}
		return false
	case closed:
		d.breakerClosed(ctx, "a job runs for longer than those that failed")
	case p.Probe:
		d.log.InfoContext(ctx, "circuit breaker half-open: trying one job")
	}
	d.pass, d.passed = p, true
	return true
}

// leaveBreaker reports the end of the run to the breaker, if there was one.
func (d *Delivery) leaveBreaker(ctx context.Context) {
	kind, r := d.envelope.Kind, breaker.Run{Job: d.envelope.ID}
	if d.run != nil {
		r.Verdict = d.run.end.verdict(d.progressed(), d.failedElsewhere())
	}
	if r.Verdict == breaker.Fails {
		r.OnlyMachine = d.onlyMachine()
	}
	now := time.Now()
	switch before, after := d.runner.breakers.Leave(kind, d.pass, r, now); {
	case after.Trips > before.Trips:
		d.breakerOpened(ctx, after, now)
	case !before.IsClosed() && after.IsClosed():
		d.breakerClosed(ctx, "a job succeeded or made progress")
	}
}

func (d *Delivery) breakerOpened(ctx context.Context, b breaker.Breaker, now time.Time) {
	kind := d.envelope.Kind
	d.runner.observer.Broke(kind)
	d.runner.loops.Note("breaker "+kind, fmt.Sprintf(
		"kind %q rests until %s, then one job at a time is tried: jobs of it fail in a row on this worker", kind, b.Until.UTC().Format(time.RFC3339)))
	level := slog.LevelDebug
	due, suppressed := d.runner.breakerLines.Allow(kind, now)
	if due {
		level = slog.LevelError
	}
	d.log.Log(ctx, level, "circuit breaker open: jobs of this kind fail in a row on this worker; leaving them to others",
		"trips", b.Trips, "retry_in", b.Until.Sub(now), "suppressed", suppressed)
}

func (d *Delivery) breakerClosed(ctx context.Context, why string) {
	kind := d.envelope.Kind
	d.runner.observer.Recovered(kind)
	d.runner.loops.Note("breaker "+kind, "")
	d.log.InfoContext(ctx, "circuit breaker closed", "reason", why)
}

// progressed reports whether the run made progress: it reported another state than it
// began with, or a larger fraction.
func (d *Delivery) progressed() bool {
	latest := d.latest()
	return latest != nil && (latest.HasState() && !latest.SameState(d.restored) || latest.Fraction > d.startFraction)
}

// failedElsewhere reports whether the job failed on another machine last, and has made no
// progress since.
func (d *Delivery) failedElsewhere() bool {
	r := d.claim.Record()
	return r.Failures > 0 && r.FailedBy != "" && r.FailedBy != d.runner.machine
}

// recordMachine records on which machine a failure happened, and whether it counts as one
// with the last.
func (d *Delivery) recordMachine(end ended) {
	if end.failed() && !job.IsInterrupted(end.err) {
		d.claim.FailsOn(d.runner.machine, d.wouldRepeat(d.claim.Record()))
	}
}

// wouldRepeat reports whether a failure of the job with that record would be a repeat, for
// which a sick machine may be the only reason: the job failed here last, no other job of
// its kind succeeded here since, and other machines could run it.
func (d *Delivery) wouldRepeat(r checkpoint.Record) bool {
	const precision = time.Second // of the service's times
	return r.Failures > 0 && r.FailedBy == d.runner.machine &&
		!d.runner.breakers.HasWorkedSince(d.envelope.Kind, d.recordWritten.Add(precision)) && !d.onlyMachine()
}

// onlyMachine reports whether no other machine runs jobs of this kind from this queue, as
// far as the heartbeats show. If they cannot be listed, others may.
func (d *Delivery) onlyMachine() bool {
	ctx, cancel := context.WithTimeout(d.cleanup, listTimeout) // the job itself may have been stopped
	defer cancel()
	seen, err := d.runner.fleet.Sample(ctx, sampleEvery)
	if err != nil {
		d.log.DebugContext(ctx, "heartbeats not listed; other machines may run this kind of job", "error", err)
		return false
	}
	since := time.Since(seen.at)
	return !slices.ContainsFunc(seen.Workers, func(p presence.Listed) bool {
		return p.Age+since <= hasKindFor && p.State != lifecycle.Stopped.String() && p.Takes(d.lease.Queue().Name()) &&
			p.HasKind(d.envelope.Kind) != presence.HasNot && machineOf(p.Worker) != d.runner.machine
	})
}

// leaveToOthers reports whether other machines should try first a job whose record was
// found.
func (d *Delivery) leaveToOthers(found checkpoint.Record) (outcome, bool) {
	if time.Since(d.recordWritten) >= repeatAfter || !d.wouldRepeat(found) {
		return outcome{}, false
	}
	return outcome{action: skip, reason: "the job failed on this machine last, and no other of its kind has succeeded here since"}, true
}

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
	// one that has run for steadyFor.
	steadyAfter = 5
	steadyFor   = time.Minute

	// chargeAfter is how long a handler may run without a new state until an exit is
	// charged. The first touch of a claim is due then, so that this is recorded.
	chargeAfter = 10 * time.Second

	// maxChargedExits charged exits in a row end a job in the poison queue, and so do
	// maxEarlyEnds early ones: of a job whose state takes longer to save than any
	// of its VMs lived.
	maxChargedExits = 10
	maxEarlyExits   = 50
)

// chargeable reports whether an unclean exit is the job's own, as of a write by a
// worker that was steady at the claim, or not, and whose handler has run for so
// long. A job that reported a state which is not saved yet did what it could.
func chargeable(steady bool, ran time.Duration, unsaved bool) bool {
	return !unsaved && (steady || ran >= chargeAfter)
}

// exhausted returns why a job with that many unclean exits in a row is not started any
// more; it is empty if the job may be started.
func exhausted(charged, early int) string {
	switch {
	case charged >= maxChargedExits:
		return fmt.Sprintf("%d unclean exits in a row without progress: the job may be killing its worker, most often by its use of memory", charged)
	case early >= maxEarlyExits:
		return fmt.Sprintf("%d unclean exits in a row before a state could be saved: "+
			"saving takes longer than the job's VMs lived, or the job may be killing its worker", early)
	}
	return ""
}

// untilSteady is how long a worker that has run for uptime leaves a job with that
// many early exits to others; 0 if it may start the job now.
func untilSteady(early int, uptime time.Duration) time.Duration {
	if early < steadyAfter {
		return 0
	}
	return max(steadyFor-uptime, 0)
}

// chargeExits makes every write of the record say whether an unclean exit after it is
// charged to the job.
func (d *Delivery) chargeExits(watch *running.Stopwatch) {
	steady := d.claim.Record().Charge
	d.claim.ChargeExits(func() bool { return chargeable(steady, watch.Elapsed(), d.changed()) })
}

// needsUncharge reports whether the record must say, before a save that may take long,
// that a new state was reported: otherwise an exit during the save would be charged.
func (d *Delivery) needsUncharge(s checkpoint.Snapshot) bool {
	r := d.claim.Record()
	return r.Charge && r.UncleanExits() > 0 && (s.Stream != nil || len(s.State) > smallState || d.outputsChanged())
}

// smallState is the largest state, in bytes, that is saved about as fast as a
// write without one.
const smallState = 64 << 10

// admit lets one quarantined job at a time run, so that a job that kills its process does
// not kill its neighbours' runs again and again.
func (d *Delivery) admit(found checkpoint.Record) (outcome, bool) {
	charged, early := checkpoint.UncleanExits(found, d.ref())
	if charged+early < quarantineAfter || exhausted(charged, early) != "" {
		return outcome{}, true
	}
	if wait := untilSteady(early, d.runner.uptime()); wait > 0 {
		d.log.Info("job left to a worker that has run for longer: the last workers died soon after they started it", "early_exits", early, "retry_in", wait)
		return outcome{action: requeue, delay: wait, reason: "the job is in quarantine and this worker has only just started"}, false
	}
	select {
	case d.runner.quarantine <- struct{}{}:
		d.quarantined = true
		d.log.Warn("job is in quarantine, one such job runs at a time: the last workers died while they ran it", "unclean_exits", charged, "early_exits", early)
		return outcome{}, true
	default:
		return outcome{action: putBack, reason: "another job in quarantine is running on this worker"}, false
	}
}

func (d *Delivery) leaveQuarantine() {
	if d.quarantined {
		<-d.runner.quarantine
	}
}
