package trial

import (
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/screen"
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

// scale is the length of a job's bar, which has no bytes to count.
const scale = 1000

// scene describes the VMs now.
func (t *trial) scene(now time.Time) screen.Scene {
	s := screen.Scene{Elapsed: t.narrator.Elapsed(), Jobs: 3}
	t.recorder.look(func(c *course) {
		s.Committed = max(0, t.jobs-1)
		if !c.Ended.IsZero() {
			s.Committed = t.jobs
		}
		for i, r := range c.Runs {
			if i < len(c.Runs)-2 {
				continue
			}
			s.VMs = append(s.VMs, r.show(now))
		}
	})
	return s
}

// show describes the VM of a run.
func (r *programRun) show(now time.Time) screen.VM {
	vm := screen.VM{Name: r.VM, State: "process"}
	switch {
	case !r.Ended.IsZero() && r.Strike != nil:
		vm.State, vm.Mood, vm.Note = "gone", screen.Gone, r.Strike.describe()
		return vm
	case !r.Ended.IsZero():
		vm.State, vm.Note = "idle", "the program has ended"
		return vm
	case r.Strike != nil:
		vm.State, vm.Mood = "evicted", screen.Leaving
	}
	vm.Jobs = []screen.Job{{Name: "program", Size: scale, Hashed: int64(r.Fraction * scale)}}
	if n := len(r.Recorded); n > 0 {
		vm.Jobs[0].Saved = int64(r.Recorded[n-1].Fraction * scale)
	} else if r.Resumed {
		vm.Jobs[0].Saved = int64(r.ResumedAt * scale)
	}
	vm.Jobs[0].Hashed = max(vm.Jobs[0].Hashed, vm.Jobs[0].Saved)
	if r.Reports == 0 {
		vm.Jobs, vm.Note = nil, fmt.Sprintf("the program runs for %.1f s", now.Sub(r.Started).Seconds())
	}
	return vm
}
