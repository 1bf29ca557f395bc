package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/job"
)

// listTimeout bounds the listing of heartbeats that a failed job waits for.
const listTimeout = 2 * time.Second

// breakerPass is the pass of the circuit breaker of a job's kind. The zero value is none.
type breakerPass struct {
	job  *claimed
	pass breaker.Pass
}

// enterBreaker asks the circuit breaker of the job's kind for a pass. Without one it returns
// the outcome of a job that is left to others.
func enterBreaker(ctx context.Context, c *claimed) (breakerPass, *outcome) {
	kind := c.envelope.Kind
	pass, closed, ok := c.env.breakers.Enter(kind, time.Now())
	b := breakerPass{c, pass}
	switch {
	case !ok:
		return breakerPass{}, c.later(Skipped, fmt.Sprintf("the circuit breaker of kind %q is open on this worker", kind))
	case closed:
		b.closed(ctx, "a job runs for longer than those that failed")
	case pass.Probe:
		c.log.InfoContext(ctx, "circuit breaker half-open: trying one job")
	}
	return b, nil
}

// leave reports the end of the run to the breaker.
func (b breakerPass) leave(ctx context.Context, verdict breaker.Verdict, failed bool) {
	kind, r := b.job.envelope.Kind, breaker.Run{Job: b.job.envelope.ID, Verdict: verdict, Failed: failed}
	if r.Verdict == breaker.Fails {
		seen := b.job.seeOthers("")
		r.OnlyMachine, r.Elsewhere = seen.none(), seen.runs(kind)
	}
	now := time.Now()
	switch before, after := b.job.env.breakers.Leave(kind, b.pass, r, now); {
	case after.Trips > before.Trips:
		b.opened(ctx, after, now)
	case !before.IsClosed() && after.IsClosed():
		b.closed(ctx, "a job succeeded or made progress")
	}
}

func (b breakerPass) opened(ctx context.Context, after breaker.Breaker, now time.Time) {
	kind := b.job.envelope.Kind
	b.job.env.Observe(observe.Broke{Kind: kind})
	how := "jobs of this kind fail in a row on this worker"
	if after.StandsOut {
		how = "far more jobs of this kind fail on this worker than on other machines"
	}
	b.job.env.Loops.Note("breaker "+kind, fmt.Sprintf("kind %q rests until %s, then one job at a time is tried: %s", kind,
		after.Until.UTC().Format(time.RFC3339), how))
	level := slog.LevelDebug
	due, suppressed := b.job.env.lines.breakers.Allow(kind, now)
	if due {
		level = slog.LevelError
	}
	b.job.log.Log(ctx, level, "circuit breaker open: leaving jobs of this kind to others", "reason", how,
		"trips", after.Trips, "retry_in", after.Until.Sub(now), "suppressed", suppressed)
}

func (b breakerPass) closed(ctx context.Context, why string) {
	kind := b.job.envelope.Kind
	b.job.env.Observe(observe.Recovered{Kind: kind})
	b.job.env.Loops.Note("breaker "+kind, "")
	b.job.log.InfoContext(ctx, "circuit breaker closed", "reason", why)
}

// failedElsewhere reports whether the job failed on another machine last, and has made no
// progress since.
func (o *owned) failedElsewhere() bool {
	last := o.claim.Record()
	return last.Failures > 0 && last.FailedBy != "" && last.FailedBy != o.env.machine
}

// failureOf returns on which machine the failure of a run happened, and whether it and the last
// failure count as one. It is zero for a run that did not fail.
func (o *owned) failureOf(end *runEnd) checkpoint.Failure {
	if !end.failed() || job.IsInterrupted(end.err) {
		return checkpoint.Failure{}
	}
	return checkpoint.Failure{Machine: o.env.machine, Repeat: o.wouldRepeat(o.claim.Record(), o.written)}
}

// others are the heartbeats of the other machines that run jobs of a kind from a queue, and
// whether they are known.
type others struct {
	heartbeats []presence.Listed
	known      bool
}

// none reports whether no other machine runs such jobs, as far as the heartbeats show. If
// they cannot be listed, others may.
func (o others) none() bool { return o.known && len(o.heartbeats) == 0 }

// runs returns how the runs of the kind ended there in the last ten minutes.
func (o others) runs(kind string) (all activity.Runs) {
	for _, p := range o.heartbeats {
		for _, k := range p.Activity.Kinds {
			if k.Name == kind {
				all.Done, all.Failed = all.Done+k.Done, all.Failed+k.Failed
			}
		}
	}
	return all
}

// seeOthers returns the other machines that run jobs of this kind from this queue, and may meet
// the needs of a state. Empty needs are met everywhere.
func (c *claimed) seeOthers(needs string) others {
	ctx, cancel := context.WithTimeout(c.cleanup, listTimeout) // the job itself may have been stopped
	defer cancel()
	seen, err := c.env.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		c.log.DebugContext(ctx, "heartbeats not listed; other machines may run this kind of job", "error", err)
		return others{}
	}
	o, since := others{known: true}, time.Since(seen.at)
	for _, p := range seen.Workers {
		if p.Age+since <= hasKindFor && p.State != lifecycle.Stopped.String() && p.Takes(c.lease.Queue().Name()) &&
			p.Meets(c.envelope.Kind, needs) != presence.HasNot && machineOf(p.Worker) != c.env.machine {
			o.heartbeats = append(o.heartbeats, p)
		}
	}
	return o
}
