package trial

import (
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// tell describes the effect of an eviction on a run.
func (t *trial) tell(number int, vm string, r *programRun) string {
	var b strings.Builder
	t.recorder.look(func(*course) {
		if r == nil || r.Strike == nil {
			fmt.Fprintf(&b, "Eviction %d: %s had no job any more.", number, vm)
			return
		}
		fmt.Fprintf(&b, "Eviction %d: %s was %s, after %s of work.", number, vm, r.Strike.describe(), text.Duration(r.took()))
		if *r.Strike == torn || *r.Strike == midSave {
			if r.Saving.IsZero() && *r.Strike == torn {
				b.WriteString(" The checkpoint was complete.")
			}
		}
		if t.program.snapshot {
			b.WriteString(r.tellFreeze())
		} else {
			b.WriteString(r.tellEnd())
		}
		switch redone := r.redone(); {
		case r.kept().IsZero() && !r.Resumed:
			b.WriteString(" Nothing was saved.")
		case redone < 10*time.Millisecond:
			b.WriteString(" Nothing is done twice.")
		default:
			fmt.Fprintf(&b, " %s of work is done again.", text.Duration(redone))
		}
	})
	return b.String()
}

// tellEnd describes the end of a run whose program was stopped.
func (r *programRun) tellEnd() string {
	switch {
	case r.Exit != "" && r.Killed:
		return fmt.Sprintf(" The program did not end in %s and was killed.", text.Duration(r.stopped()))
	case r.Exit != "" && !r.Stop.IsZero():
		return fmt.Sprintf(" The program %s %s after SIGTERM.", r.Exit, text.Duration(r.stopped()))
	}
	return ""
}
