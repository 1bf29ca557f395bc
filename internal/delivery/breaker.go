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
	"github.com/spotworker/spotworker/job"
)

// listTimeout bounds the listing of heartbeats that a failed job waits for.
const listTimeout = 2 * time.Second

// breakerPass is the pass of the circuit breaker of a job's kind.
type breakerPass struct {
	msg  *message
	pass breaker.Pass
}

// enterBreaker asks the circuit breaker of the job's kind for a pass. Without one it returns
// the outcome of a job that is left to others.
func enterBreaker(ctx context.Context, m *message) (*breakerPass, *outcome) {
	kind := m.envelope.Kind
	pass, closed, ok := m.runner.breakers.Enter(kind, time.Now())
	b := &breakerPass{m, pass}
	switch {
	case !ok:
		return nil, &outcome{action: skip, reason: fmt.Sprintf("the circuit breaker of kind %q is open on this worker", kind)}
	case closed:
		b.closed(ctx, "a job runs for longer than those that failed")
	case pass.Probe:
		m.log.InfoContext(ctx, "circuit breaker half-open: trying one job")
	}
	return b, nil
}

// leave reports the end of the run to the breaker.
func (b *breakerPass) leave(ctx context.Context, verdict breaker.Verdict, failed bool) {
	kind, r := b.msg.envelope.Kind, breaker.Run{Job: b.msg.envelope.ID, Verdict: verdict, Failed: failed}
	if r.Verdict == breaker.Fails {
		seen := b.msg.seeOthers("")
		r.OnlyMachine, r.Elsewhere = seen.none(), seen.runs(kind)
	}
	now := time.Now()
	switch before, after := b.msg.runner.breakers.Leave(kind, b.pass, r, now); {
	case after.Trips > before.Trips:
		b.opened(ctx, after, now)
	case !before.IsClosed() && after.IsClosed():
		b.closed(ctx, "a job succeeded or made progress")
	}
}

func (b *breakerPass) opened(ctx context.Context, after breaker.Breaker, now time.Time) {
	kind := b.msg.envelope.Kind
	b.msg.runner.Observer.Broke(kind)
	how := "jobs of this kind fail in a row on this worker"
	if after.StandsOut {
		how = "far more jobs of this kind fail on this worker than on other machines"
	}
	b.msg.runner.Loops.Note("breaker "+kind, fmt.Sprintf("kind %q rests until %s, then one job at a time is tried: %s", kind,
		after.Until.UTC().Format(time.RFC3339), how))
	level := slog.LevelDebug
	due, suppressed := b.msg.runner.lines.breakers.Allow(kind, now)
	if due {
		level = slog.LevelError
	}
	b.msg.log.Log(ctx, level, "circuit breaker open: leaving jobs of this kind to others", "reason", how,
		"trips", after.Trips, "retry_in", after.Until.Sub(now), "suppressed", suppressed)
}

func (b *breakerPass) closed(ctx context.Context, why string) {
	kind := b.msg.envelope.Kind
	b.msg.runner.Observer.Recovered(kind)
	b.msg.runner.Loops.Note("breaker "+kind, "")
	b.msg.log.InfoContext(ctx, "circuit breaker closed", "reason", why)
}

// failedElsewhere reports whether the job failed on another machine last, and has made no
// progress since.
func (r *recorder) failedElsewhere() bool {
	last := r.claim.Record()
	return last.Failures > 0 && last.FailedBy != "" && last.FailedBy != r.msg.runner.machine
}

// recordMachine records on which machine a failure happened, and whether it and the last
// failure count as one.
func (r *recorder) recordMachine(end *runEnd) {
	if end.failed() && !job.IsInterrupted(end.err) {
		r.known.failure = checkpoint.Failure{Machine: r.msg.runner.machine, Repeat: r.wouldRepeat(r.claim.Record())}
	}
}

// wouldRepeat reports whether a failure of the job with that record would be a repeat, for
// which a sick machine may be the only reason: the job failed here last, no other job of
// its kind succeeded here since, and other machines could run it from its state.
func (r *recorder) wouldRepeat(found checkpoint.Record) bool {
	const precision = time.Second // of the service's times
	return found.Failures > 0 && found.FailedBy == r.msg.runner.machine &&
		!r.msg.runner.breakers.HasWorkedSince(r.msg.envelope.Kind, r.found.written.Add(precision)) &&
		!r.msg.seeOthers(found.StateNeeds).none()
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
func (m *message) seeOthers(needs string) others {
	ctx, cancel := context.WithTimeout(m.cleanup, listTimeout) // the job itself may have been stopped
	defer cancel()
	seen, err := m.runner.Fleet.Sample(ctx, sampleEvery)
	if err != nil {
		m.log.DebugContext(ctx, "heartbeats not listed; other machines may run this kind of job", "error", err)
		return others{}
	}
	o, since := others{known: true}, time.Since(seen.at)
	for _, p := range seen.Workers {
		if p.Age+since <= hasKindFor && p.State != lifecycle.Stopped.String() && p.Takes(m.lease.Queue().Name()) &&
			p.Meets(m.envelope.Kind, needs) != presence.HasNot && machineOf(p.Worker) != m.runner.machine {
			o.heartbeats = append(o.heartbeats, p)
		}
	}
	return o
}

// leaveToOthers returns an outcome if other machines should try the job first, by the record
// that was found.
func (q *acquisition) leaveToOthers(found checkpoint.Record) *outcome {
	if time.Since(q.rec.found.written) >= repeatAfter || !q.rec.wouldRepeat(found) {
		return nil
	}
	return &outcome{action: skip, reason: "the job failed on this machine last, and no other of its kind has succeeded here since"}
}
