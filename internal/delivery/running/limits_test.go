package running

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/job"
)

func TestExceeded(t *testing.T) {
	both := job.Limits{MaxRun: time.Hour, MaxSilence: time.Minute}
	for _, row := range []struct {
		name         string
		limits       job.Limits
		paid, silent time.Duration
		want         job.Reason
		until        time.Duration
	}{
		{"just begun", both, 0, 0, "", time.Minute},
		{"soon silent for too long", both, 30 * time.Minute, 59 * time.Second, "", time.Second},
		{"soon run for too long", both, time.Hour - time.Second, 0, "", time.Second},
		{"silent for too long", both, time.Minute, time.Minute, job.Silent, 0},
		{"run for too long", both, time.Hour, 0, job.Overrun, 0},
		{"both: more time is of no use", both, 2 * time.Hour, 2 * time.Hour, job.Overrun, 0},
		{"only one limit", job.Limits{MaxSilence: time.Minute}, 100 * time.Hour, time.Second, "", 59 * time.Second},
		{"only the other", job.Limits{MaxRun: time.Hour}, time.Minute, 59 * time.Minute, "", 59 * time.Minute},
	} {
		reason, err := Exceeded(row.limits, row.paid, row.silent)
		if reason != row.want || (err != nil) != (row.want != "") {
			t.Errorf("%s: Exceeded = %q, %v, want %q", row.name, reason, err, row.want)
		}
		if got := UntilExceeded(row.limits, row.paid, row.silent); err == nil && got != row.until {
			t.Errorf("%s: UntilExceeded = %s, want %s", row.name, got, row.until)
		}
	}
}

// A handler's time ends with the handler, however long its last write takes.
func TestStopwatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := new(Clock).start(nil)
		time.Sleep(time.Second)
		if got := watch.Elapsed(); got != time.Second {
			t.Errorf("elapsed = %s, want 1s", got)
		}
		watch.Stop()
		time.Sleep(time.Hour)
		if got := watch.Elapsed(); got != time.Second {
			t.Errorf("elapsed an hour after the end = %s, want 1s", got)
		}
	})
}
