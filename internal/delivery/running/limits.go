package running

import (
	"fmt"
	"math"
	"time"

	"github.com/spotworker/spotworker/job"
)

// Exceeded returns which limit a job exceeds, given its run time and how long it has been
// silent. The error is nil if it exceeds none.
func Exceeded(limits job.Limits, ran, silent time.Duration) (job.Reason, error) {
	switch {
	case limits.MaxRun > 0 && ran >= limits.MaxRun:
		return job.Overrun, fmt.Errorf("%s over all deliveries; %s are allowed (max_run)", ran.Round(time.Millisecond), limits.MaxRun)
	case limits.MaxSilence > 0 && silent >= limits.MaxSilence:
		return job.Silent, fmt.Errorf("silent for %s; %s are allowed (max_silence)", silent.Round(time.Millisecond), limits.MaxSilence)
	}
	return "", nil
}

// UntilExceeded returns how long such a job, which exceeds no limit yet, may continue
// without a report.
func UntilExceeded(limits job.Limits, ran, silent time.Duration) time.Duration {
	wait := time.Duration(math.MaxInt64)
	if limits.MaxRun > 0 {
		wait = limits.MaxRun - ran
	}
	if limits.MaxSilence > 0 {
		wait = min(wait, limits.MaxSilence-silent)
	}
	return wait
}
