package process

import (
	"encoding/json"
	"os"
	"time"

	"github.com/spotworker/spotworker/job"
)

// Bounds of the time that is kept back for a last look at what a program left.
const (
	shortestReserve = 100 * time.Millisecond
	longestReserve  = time.Second
)

// reserve is how much of the time that is left a program does not get.
func reserve(left time.Duration) time.Duration {
	return min(max(left/8, shortestReserve), longestReserve)
}

// stopNote is what the stop file says.
type stopNote struct {
	Reason      job.Reason `json:"reason"`
	SecondsLeft float64    `json:"seconds_left"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
}

// noteOf is the note for a stop after which the program has so much time.
func noteOf(stop *job.Stop, left time.Duration) stopNote {
	note := stopNote{Reason: stop.Reason, SecondsLeft: max(0, left.Round(time.Millisecond).Seconds())}
	if !stop.NotBefore.IsZero() {
		at := stop.NotBefore.UTC()
		note.NotBefore = &at
	}
	return note
}

// writeStop makes the stop file appear, whole.
func (f *folder) writeStop(note stopNote) error {
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.stopWriting, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(f.stopWriting, f.stop)
}
