package trial

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Measured is how a program worked in a trial, for a replay. Times are in seconds.
type Measured struct {
	Seconds    float64 `json:"seconds"`     // undisturbed
	StateBytes int64   `json:"state_bytes"` // of the largest checkpoint; 0 without any
	StateEvery float64 `json:"state_every"` // between two checkpoints while it runs; 0 without any
	AtNotice   bool    `json:"at_notice"`   // it puts a checkpoint in place when it is stopped
	Stop       float64 `json:"stop"`        // from SIGTERM to its end
	Start      float64 `json:"start"`       // from a start with a checkpoint until it works
	Snapshot   bool    `json:"snapshot"`    // it is frozen, and continues only on a machine like the snapshot's
}

// Measure tries a program with two evictions, with notice and without, and returns its
// measured figures. Results are not compared. The error wraps [ErrNotInterruptible] or
// [ErrNotTried] and says what to do if a replay of the program would mean nothing: it fails,
// takes too long, or does not resume. A program that saves nothing is replayed.
func Measure(ctx context.Context, c Config, out io.Writer) (Measured, error) {
	c.Compare, c.CompareWith, c.Evictions = CompareNothing, "", 2
	report, err := Run(ctx, c, out)
	if err != nil && report.Version == 0 {
		return Measured{}, err
	}
	return report.measured()
}

// harmless are problems of a program that its measured figures express, or that are none of
// a replay.
var harmless = []string{"saves-nothing", "late-save", "checkpoint-grows", "scratch-state", "left-behind", "outside-state"}

// measured returns the figures of a report.
func (r Report) measured() (Measured, error) {
	for _, f := range r.Findings {
		if f.Severity == Problem && !slices.Contains(harmless, f.Name) {
			err := ErrNotInterruptible
			if r.isUntried() {
				err = ErrNotTried
			}
			return Measured{}, fmt.Errorf("%w: %s. %s", err, f.What, f.Advice)
		}
	}
	t := r.Undisturbed
	if t.Seconds < tooShort.Seconds() {
		return Measured{}, fmt.Errorf("%w: one run takes %s, too short to be measured: give it a payload with more to do", ErrNotTried,
			duration(t.Seconds))
	}
	m := Measured{Seconds: t.Seconds, StateBytes: t.CheckpointBytes, StateEvery: t.Interval, Snapshot: r.Snapshot}
	if t.Checkpoints > 0 && t.Interval == 0 { // a single one, or a busy machine observed several at once
		m.StateEvery = t.Seconds / float64(t.Checkpoints+1)
	}
	var stops, signs []float64
	saved := 0
	for _, e := range r.Evictions {
		if e.Stop >= 0 {
			stops = append(stops, e.Stop)
			if e.Saved {
				saved++
			}
		}
		if e.Sign >= 0 {
			signs = append(signs, e.Sign)
		}
	}
	if len(stops) == 0 {
		return m, fmt.Errorf("%w: it ended before a notice could stop it: give it a payload with more to do", ErrNotTried)
	}
	m.AtNotice, m.Stop = saved > 0, median(stops) // a slow machine may stop it before it can handle SIGTERM
	if t.Checkpoints > 0 || m.AtNotice {
		m.Start = max(0, median(signs)-r.untilSign())
	}
	return m, nil
}
