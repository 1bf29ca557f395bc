package worker

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/job"
)

// stopwatch measures one run of a handler. It may be read from any goroutine.
type stopwatch struct {
	begun      time.Time
	took       atomic.Int64 // nanoseconds; 0 while it runs
	lastReport atomic.Int64 // when the last report came, in nanoseconds from begun
}

func startStopwatch() *stopwatch { return &stopwatch{begun: time.Now()} }

func (s *stopwatch) elapsed() time.Duration {
	if took := s.took.Load(); took > 0 {
		return time.Duration(took)
	}
	return time.Since(s.begun)
}

// reported takes note of a report.
func (s *stopwatch) reported() { s.lastReport.Store(int64(time.Since(s.begun))) }

// silence is how long the handler has gone without a report.
func (s *stopwatch) silence() time.Duration {
	heard := time.Duration(s.lastReport.Load())
	return time.Since(s.begun) - heard
}

func (s *stopwatch) stop() { s.took.Store(int64(max(time.Since(s.begun), 1))) }

// limitsFor are those of the job: of its kind and of its message, the stricter of
// each.
func (d *delivery) limitsFor(handler job.Handler) job.Limits {
	return job.LimitsOf(handler).Stricter(job.Limits{MaxRun: d.envelope.MaxRun, MaxSilence: d.envelope.MaxSilence})
}

// enforceLimits stops the job as soon as it exceeds one of its limits, also while a
// save is under way. The returned function ends that, and waits for it.
func (d *delivery) enforceLimits(ctx context.Context, limits job.Limits, watch *stopwatch) (end func()) {
	if limits.MaxRun == 0 && limits.MaxSilence == 0 {
		return func() {}
	}
	if limits.MaxSilence > 0 {
		d.job.OnReport(func(*job.Progress) { watch.reported() })
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			paid, silent := d.claim.RunTime(), watch.silence()
			if reason, err := exceeded(limits, paid, silent); err != nil {
				d.log.WarnContext(ctx, "job exceeds a limit; stopping it", "reason", string(reason), "error", err)
				d.stopJob(reason, err)
				return
			}
			if !sleepFor(ctx, untilExceeded(limits, paid, silent)) {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// exceeded says which limit a job exceeds that was paid and silent for so long,
// and by how much. The error is nil if it exceeds none.
func exceeded(limits job.Limits, paid, silent time.Duration) (job.Reason, error) {
	switch {
	case limits.MaxRun > 0 && paid >= limits.MaxRun:
		return job.Overrun, fmt.Errorf("%s over all deliveries; %s are allowed (max_run)", paid.Round(time.Millisecond), limits.MaxRun)
	case limits.MaxSilence > 0 && silent >= limits.MaxSilence:
		return job.Silent, fmt.Errorf("silent for %s; %s are allowed (max_silence)", silent.Round(time.Millisecond), limits.MaxSilence)
	}
	return "", nil
}

// untilExceeded returns how long it takes such a job, which exceeds no limit
// yet, to exceed one if it makes no report.
func untilExceeded(limits job.Limits, paid, silent time.Duration) time.Duration {
	wait := time.Duration(math.MaxInt64)
	if limits.MaxRun > 0 {
		wait = limits.MaxRun - paid
	}
	if limits.MaxSilence > 0 {
		wait = min(wait, limits.MaxSilence-silent)
	}
	return wait
}
