package detail

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// TestDeadlineInWords: a job that is done has met its deadline, or missed it.
func TestDeadlineInWords(t *testing.T) {
	due := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for want, j := range map[string]client.Job{
		"": {Status: client.StatusDone, EndedAt: due},
		"2026-11-23T12:00:00Z, met with 2h to spare": {Status: client.StatusDone, Deadline: due, EndedAt: due.Add(-2 * time.Hour)},
		"2026-11-23T12:00:00Z, met with 0s to spare": {Status: client.StatusDone, Deadline: due, EndedAt: due},
		"2026-11-23T12:00:00Z, missed by 2h":         {Status: client.StatusDone, Deadline: due, EndedAt: due.Add(2 * time.Hour)},
		"2026-11-23T12:00:00Z (in 1h)":               {Status: client.StatusRunning, Deadline: due, ReadAt: due.Add(-time.Hour)},
		"2026-11-23T12:00:00Z (1h ago)":              {Status: client.StatusRunning, Deadline: due, ReadAt: due.Add(time.Hour)},
	} {
		if got := deadlineInWords(j); got != want {
			t.Errorf("deadlineInWords = %q, want %q", got, want)
		}
	}
}
