package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/lab/screen"
)

// Incident is something that happens to a VM in the middle of its work.
type Incident int

const (
	// Kill takes a VM away without a word, once a third of one of its jobs is
	// saved and the job has gone on since.
	Kill Incident = iota + 1

	// Freeze stops a VM's worker once a third of each of its jobs is saved, and
	// lets it go on when other workers have taken its jobs over.
	Freeze

	// Evict announces the eviction of a VM at its metadata endpoint, and takes
	// it away when its worker has drained or the notice's time is up.
	Evict
)

// Config describes a demo.
type Config struct {
	// Workers is how many VMs work at a time, 1 … [MaxWorkers].
	Workers int

	// JobsAtOnce is how many jobs each of them runs at a time, from 1.
	JobsAtOnce int

	// Files is how many inputs become jobs, 1 … [MaxFiles], and FileSize about
	// how many bytes each has. Roots are the folders whose files they are made
	// of, see [Choose]. Default: [Roots].
	Files    int
	FileSize int64
	Roots    []string

	// JobTime is about how long a job takes when nothing happens to it: each
	// download of an input is slowed down accordingly. 0 slows nothing down.
	JobTime time.Duration

	// CheckpointInterval is the workers' flag of that name, from
	// [MinCheckpointInterval]. A kill waits until a job has a checkpoint, so it
	// must be shorter than the jobs.
	CheckpointInterval time.Duration

	// Duplicate puts one of the jobs twice, and Odd puts messages that no worker
	// can do anything with among the jobs. A duplicate takes half a minute.
	Duplicate, Odd bool

	// Incidents happen in this order, each as soon as a VM is ready for it.
	// After each a new VM takes the place of the one that is gone.
	Incidents []Incident

	// TimeLimit bounds all of it but the building of the programs.
	TimeLimit time.Duration

	// Binaries is a folder with worker and producer. Empty builds them.
	Binaries string

	// Keep keeps the workers' logs even when all went well.
	Keep bool

	// Stage shows the fleet while it works. Optional.
	Stage Stage
}

// Stage is where the fleet at work is shown.
type Stage interface {
	// Show replaces what is shown.
	Show(screen.Scene)

	// End shows nothing more: the table comes next.
	End()
}

// Limits of a demo.
const (
	MaxWorkers = 32
	MaxFiles   = 1000

	// MinCheckpointInterval leaves time to see that something is not saved.
	MinCheckpointInterval = 200 * time.Millisecond
)

// DefaultConfig is the demo that `make demo` shows. Its jobs take 10 to 15 s,
// and the last of them end soon after the 30 s in which the messages of a dead
// worker return.
func DefaultConfig() Config {
	return Config{
		Workers: 4, JobsAtOnce: 2, Files: 16, FileSize: 32 << 20, JobTime: 12 * time.Second,
		CheckpointInterval: 2 * time.Second, TimeLimit: 2 * time.Minute,
		Duplicate: true, Odd: true, Incidents: []Incident{Kill, Freeze, Evict},
	}
}

// Validate says what must be changed, or returns nil.
func (c Config) Validate() error {
	switch {
	case c.Workers < 1 || c.Workers > MaxWorkers:
		return fmt.Errorf("--workers %d is out of range: give 1 to %d", c.Workers, MaxWorkers)
	case c.JobsAtOnce < 1:
		return fmt.Errorf("--jobs-at-once %d is out of range: give at least 1", c.JobsAtOnce)
	case c.Files < 1 || c.Files > MaxFiles:
		return fmt.Errorf("--files %d is out of range: give 1 to %d", c.Files, MaxFiles)
	case c.CheckpointInterval < MinCheckpointInterval:
		return fmt.Errorf("--checkpoint-interval %s is out of range: give at least %s", c.CheckpointInterval, MinCheckpointInterval)
	case c.JobTime <= c.CheckpointInterval:
		return fmt.Errorf("--job-time %s is too short: give more than the checkpoint interval, %s", c.JobTime, c.CheckpointInterval)
	case c.TimeLimit <= 0:
		return errors.New("--time-limit must be a time such as 2m")
	}
	return nil
}
