package program

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/spotworker/spotworker/job"
)

// TestReserve: the time kept back for a last look is never all there is of a
// usual budget, and never long.
func TestReserve(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		0: shortestReserve, 500 * time.Millisecond: shortestReserve, 5 * time.Second: 625 * time.Millisecond, time.Minute: longestReserve,
	} {
		if got := reserve(left); got != want {
			t.Errorf("reserve(%s) = %s, want %s", left, got, want)
		}
	}
}

func TestStopNote(t *testing.T) {
	at := time.Date(2026, 3, 9, 13, 0, 0, 0, time.FixedZone("", 3600))
	for want, note := range map[string]stopNote{
		`{"reason":"evicted","seconds_left":4.375,"not_before":"2026-03-09T12:00:00Z"}`: noteOf(&job.Stop{Reason: job.Evicted, NotBefore: at},
			4375*time.Millisecond),
		`{"reason":"shutdown","seconds_left":0}`: noteOf(&job.Stop{Reason: job.Shutdown, Err: errors.New("x")}, -time.Second),
	} {
		if got, err := json.Marshal(note); string(got) != want || err != nil {
			t.Errorf("stop file = %s, %v, want %s", got, err, want)
		}
	}
}
