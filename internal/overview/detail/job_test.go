package detail

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/job"
)

// TestInputsInWords names the first inputs, without control characters.
func TestInputsInWords(t *testing.T) {
	one := job.Input{Container: "data", Blob: "a.csv"}
	for want, inputs := range map[string][]job.Input{
		"":                          nil,
		"data/a.csv, data/frames/*": {one, {Container: "data", Prefix: "frames/"}},
		"data/*, https://other.blob.core.windows.net/lists/7 (the list in it)": {{Container: "data"},
			{Account: "https://other.blob.core.windows.net/", Container: "lists", Manifest: "7"}},
		"data/a.csv, data/a.csv, data/a.csv, data/a.csv, 2 more": {one, one, one, one, one, one},
		"data/\uFFFD[31m": {{Container: "data", Blob: "\x1b[31m"}},
	} {
		if got := inputsInWords(inputs); got != want {
			t.Errorf("inputsInWords = %q, want %q", got, want)
		}
	}
}

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
