package demo

import (
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// Incident is something that happens to a VM in the middle of its work.
type Incident int

const (
	// Kill kills a VM without notice, once a third of one of its jobs is saved
	// and more of it is done.
	Kill Incident = iota + 1

	// Freeze suspends a VM's worker once a third of each of its jobs is saved,
	// and resumes it when other workers have taken over its jobs.
	Freeze

	// Evict announces the eviction of a VM at its metadata endpoint, and removes
	// the VM when its worker has drained or the notice has ended.
	Evict
)

// String names the incident, for people.
func (i Incident) String() string {
	switch i {
	case Kill:
		return "a kill"
	case Freeze:
		return "a freeze"
	case Evict:
		return "an eviction"
	default:
		return fmt.Sprintf("incident %d", int(i))
	}
}

// Config describes a demo.
type Config struct {
	// Workers is how many VMs there are at a time.
	Workers int

	// JobsAtOnce is how many jobs each worker runs at a time.
	JobsAtOnce int

	// Files is how many inputs become jobs, 1 … [lab.MaxFiles], and FileSize
	// about how many bytes each has. Roots are the folders whose files they are
	// made of, see [lab.Choose]. Default: [lab.Roots].
	Files    int
	FileSize int64
	Roots    []string

	// JobTime is about how long a job takes when nothing happens to it: the
	// bandwidth of each download is limited accordingly. 0 is no limit.
	JobTime time.Duration

	// CheckpointInterval is the workers' flag of that name. A kill waits until a job has a
	// checkpoint, so it must be shorter than the jobs.
	CheckpointInterval time.Duration

	// Duplicate puts one job twice, which takes half a minute. BadMessages puts
	// messages that no worker can process among the jobs.
	Duplicate, BadMessages bool

	// Incidents happen in this order, each as soon as a VM is ready for it. Each
	// lost VM is replaced.
	Incidents []Incident

	// TimeLimit is the time limit of the demo.
	TimeLimit time.Duration

	// Keep keeps the workers' logs even if every promise was kept.
	Keep bool

	// Told is called with the story of the run after its table, also if a promise was
	// broken; its error is the demo's. Optional.
	Told func(lanes.Story) error
}

// DefaultConfig is the demo that `make demo` shows. Its jobs take 10 to 15 s,
// and the last end soon after the 30 s in which the messages of a dead worker
// become visible again.
func DefaultConfig() Config {
	return Config{
		Workers: 4, JobsAtOnce: 2, Files: 16, FileSize: lab.FileSize, JobTime: lab.JobTime,
		CheckpointInterval: 2 * time.Second, TimeLimit: 5 * time.Minute,
		Duplicate: true, BadMessages: true, Incidents: []Incident{Kill, Freeze, Evict},
	}
}
