package lab

import (
	"errors"
	"fmt"
	"time"
)

// Incident is something that happens to a VM in the middle of its work.
type Incident int

const (
	// Kill takes a VM away without a word, once one of its jobs has a
	// checkpoint and has gone on since.
	Kill Incident = iota + 1

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

	// Files is how many files become jobs, 1 … [MaxFiles]; Roots are the folders
	// in which they are looked for, see [Choose]. Default: [Roots].
	Files int
	Roots []string

	// WorkTime is about how long the fleet is to be busy: downloads of the input
	// are slowed down accordingly. It must be longer than the 30 s after which a
	// dead worker's messages return, or nearly so: an idle fleet asks an empty
	// queue ever more rarely. 0 slows nothing down.
	WorkTime time.Duration

	// CheckpointInterval is the workers' flag of that name, from
	// [MinCheckpointInterval]. A kill waits until a job has a checkpoint, so it
	// must be shorter than the jobs.
	CheckpointInterval time.Duration

	// Incidents happen in this order. After each a new VM takes the place of
	// the one that is gone.
	Incidents []Incident

	// TimeLimit bounds all of it but the building of the programs.
	TimeLimit time.Duration

	// Binaries is a folder with worker and producer. Empty builds them.
	Binaries string

	// Keep keeps the workers' logs even when all went well.
	Keep bool
}

// Limits of a demo.
const (
	MaxWorkers = 32
	MaxFiles   = 1000

	// MinCheckpointInterval leaves time to see that something is not saved.
	MinCheckpointInterval = 200 * time.Millisecond
)

// DefaultConfig is the demo that `make demo` shows.
func DefaultConfig() Config {
	return Config{
		Workers: 3, JobsAtOnce: 2, Files: 24, WorkTime: 27 * time.Second,
		CheckpointInterval: 2 * time.Second, TimeLimit: 2 * time.Minute,
		Incidents: []Incident{Kill, Evict},
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
	case c.TimeLimit <= 0:
		return errors.New("--time-limit must be a time such as 2m")
	}
	return nil
}
