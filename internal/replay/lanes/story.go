package lanes

import (
	"fmt"
	"strings"
	"time"
)

// Story is a run of a fleet. Times are since its start.
type Story struct {
	Took  time.Duration // the whole time
	About string        // the settings
	VMs   []VM          // in the order of their start
	Jobs  []Job

	Figures  []Figure  // shown below the picture, three at most
	Promises []Promise // with the measured values
}

// VM is one VM with its worker.
type VM struct {
	Name     string
	From, To time.Duration // To is 0 if it lived until the end
	Fate     Fate
	Struck   time.Duration // when it was killed or frozen, or its eviction was announced
	Thawed   time.Duration // when a frozen worker continued; 0 if it did not
}

// Fate is the end of a VM, or a pause.
type Fate int

// The fates of VMs.
const (
	Spared Fate = iota
	Evicted
	Killed
	Frozen
)

// Job is a job with its runs, in the order of their start.
type Job struct {
	Name string
	Done time.Duration // 0 if it has no result
	Runs []Run
}

// Run is the time of a job on a VM.
type Run struct {
	VM       int // index into the story's VMs
	From, To time.Duration
	End      End
	Saves    []time.Duration
	Lost     time.Duration // the last part of it was not saved and was lost

	// A thawed worker works from StaleFrom until it finds at StaleTo that it lost its job.
	StaleFrom, StaleTo time.Duration
}

// End is how a run ended.
type End int

// The ends of runs.
const (
	Running   End = iota // it did not end
	Committed            // the job has its result
	Released             // after a notice
	Died                 // with its VM
	Fell                 // its worker was frozen, and others took the job over
	Left                 // the worker found that the job is another's, is over, or cannot be done
)

// words are the ends of runs for people.
var words = map[End]string{
	Running: "still running", Committed: "done", Released: "saved and released after a notice", Died: "lost with its VM",
	Fell: "frozen with its VM", Left: "left to others",
}

// interrupted reports whether the job continues in its next run.
func (r Run) interrupted() bool { return r.End == Released || r.End == Died || r.End == Fell }

// Figure is a measured number with its meaning.
type Figure struct {
	Value, Name, Note string
	Bad               bool // a promise was broken
}

// Promise is a promise with its measurement. One without a verdict is a heading.
type Promise struct{ Label, Measured, Promised, Verdict string }

// Title names the run in a line.
func (s Story) Title() string {
	var fates []string
	for _, of := range []struct {
		fate Fate
		word string
	}{{Killed, "killed"}, {Frozen, "frozen"}, {Evicted, "evicted"}} {
		if n := s.count(of.fate); n > 0 {
			fates = append(fates, fmt.Sprintf("%d %s", n, of.word))
		}
	}
	title := fmt.Sprintf("%s on %s", plural(len(s.Jobs), "job"), plural(len(s.VMs), "Spot VM"))
	if len(fates) > 0 {
		title += ": " + strings.Join(fates, ", ")
	}
	return title
}

func (s Story) count(fate Fate) (n int) {
	for _, vm := range s.VMs {
		if vm.Fate == fate {
			n++
		}
	}
	return n
}

// continued returns how many jobs a VM's fate interrupted and others continued, and how long
// the slowest of them waited.
func (s Story) continued(vm int) (jobs int, slowest time.Duration) {
	for _, job := range s.Jobs {
		for n, run := range job.Runs[:max(0, len(job.Runs)-1)] {
			if run.VM == vm && run.interrupted() {
				jobs++
				slowest = max(slowest, job.Runs[n+1].From-s.VMs[vm].Struck)
			}
		}
	}
	return jobs, slowest
}

// words says what happened to a VM, and to its jobs.
func (s Story) words(vm int) (long, short, then string) {
	switch s.VMs[vm].Fate {
	case Killed:
		long, short = "killed without notice", "killed"
	case Frozen:
		long, short = "frozen, presumed dead", "frozen"
	case Evicted:
		long, short = "evicted with notice", "evicted"
	case Spared:
		return "", "", ""
	}
	switch jobs, slowest := s.continued(vm); jobs {
	case 0:
		then = "no job was interrupted"
	case 1:
		then = fmt.Sprintf("1 job continues after %.1f s", slowest.Seconds())
	default:
		then = fmt.Sprintf("%d jobs continue after %.1f s", jobs, slowest.Seconds())
	}
	return long, short, then
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
