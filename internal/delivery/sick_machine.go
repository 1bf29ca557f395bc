package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/job"
)

// listTimeout bounds the listing of heartbeats that a failed job waits for.
const listTimeout = 2 * time.Second

// enterBreaker asks the circuit breaker of the job's kind for a pass. If ok is false, the
// job is left to others.
func (d *Delivery) enterBreaker(ctx context.Context) (pass, outcome, bool) {
	kind := d.envelope.Kind
	p, closed, ok := d.runner.breakers.enter(kind, time.Now())
	switch {
	case !ok:
		return pass{}, outcome{action: skip, reason: fmt.Sprintf("the circuit breaker of kind %q is open on this worker", kind)}, false
	case closed:
		d.breakerClosed(ctx, "a job runs for longer than those that failed")
	case p.probe:
		d.log.InfoContext(ctx, "circuit breaker half-open: trying one job")
	}
	return p, outcome{}, true
}

// leaveBreaker reports the end of the run to the breaker; end is nil if there was none.
func (d *Delivery) leaveBreaker(ctx context.Context, p pass, end *ended) {
	kind, r := d.envelope.Kind, finishedRun{job: d.envelope.ID}
	if end != nil {
		r.verdict = end.verdict(d.progressed(), d.failedElsewhere())
	}
	if r.verdict == fails {
		r.onlyMachine = d.onlyMachine()
	}
	now := time.Now()
	switch before, after := d.runner.breakers.leave(kind, p, r, now); {
	case after.trips > before.trips:
		d.breakerOpened(ctx, after, now)
	case !before.isClosed() && after.isClosed():
		d.breakerClosed(ctx, "a job got somewhere")
	}
}

func (d *Delivery) breakerOpened(ctx context.Context, b breaker, now time.Time) {
	kind := d.envelope.Kind
	d.runner.observer.Broke(kind)
	d.runner.loops.Note("breaker "+kind, fmt.Sprintf(
		"kind %q rests until %s, then one job at a time is tried: jobs of it fail in a row on this worker", kind, b.until.UTC().Format(time.RFC3339)))
	d.log.ErrorContext(ctx, "circuit breaker open: jobs of this kind fail in a row on this worker; leaving them to others",
		"times", b.trips, "rest", b.until.Sub(now))
}

func (d *Delivery) breakerClosed(ctx context.Context, why string) {
	kind := d.envelope.Kind
	d.runner.observer.Recovered(kind)
	d.runner.loops.Note("breaker "+kind, "")
	d.log.InfoContext(ctx, "circuit breaker closed", "why", why)
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
		!d.runner.breakers.hasWorkedSince(d.envelope.Kind, d.recordWritten.Add(precision)) && !d.onlyMachine()
}

// onlyMachine reports whether no other machine runs jobs of this kind from this queue, as
// far as the heartbeats show. If they cannot be listed, others may.
func (d *Delivery) onlyMachine() bool {
	ctx, cancel := context.WithTimeout(d.cleanup, listTimeout) // the job itself may have been stopped
	defer cancel()
	seen, err := d.runner.fleet.Sample(ctx, sampleEvery)
	if err != nil {
		d.log.DebugContext(ctx, "heartbeats not listed; other machines may have the kind", "error", err)
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
