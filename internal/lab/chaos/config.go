package chaos

import (
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
)

// Config describes a run.
type Config struct {
	// Kills is how many workers are killed, and For how long there are incidents.
	// 0 is no limit; one of the two must be set. The first that is reached ends
	// the run.
	Kills int
	For   time.Duration

	// Seed is the seed of all random choices. 0 is a random one.
	Seed uint64

	// Workers is how many VMs work at a time, 1 … [MaxWorkers], and JobsAtOnce
	// how many jobs each of them runs at a time.
	Workers, JobsAtOnce int

	// PerSecond is how many incidents a second there are, at most.
	PerSecond float64

	// JobTime is how long a job takes when nothing happens to it, in steps of
	// [stepTime].
	JobTime time.Duration

	// Visibility and CheckpointInterval are the workers' flags of those names.
	Visibility, CheckpointInterval time.Duration

	// FreezeEvery, EvictEvery and CutEvery are how many incidents there are, on
	// average, for one freeze, one eviction with notice, and one fault of a
	// worker's connections to storage; 0 is none.
	FreezeEvery, EvictEvery, CutEvery int

	// AnyMoment makes all kills come at any moment, as VMs die, and none at a call.
	AnyMoment bool

	// ProgramEvery is how many jobs there are, on average, for each job that is a
	// program, and LackEvery how many workers for each worker that cannot run programs; 0
	// is none.
	ProgramEvery, LackEvery int

	// DuplicateEvery, LargeEvery and StreamEvery are how many jobs there are, on average,
	// for each job that is put twice, has a payload in a blob, or has a state of 3 MiB; 0
	// is none. A duplicate takes half a minute.
	DuplicateEvery, LargeEvery, StreamEvery int

	// ConnectionString is for the storage account, on loopback. Empty starts an account
	// in this process.
	ConnectionString string

	// Worker is the program that is run with [WorkerCommand]. Default: this one.
	Worker string

	// Keep keeps the logs of the last workers even if every promise was kept.
	Keep bool
}

// Limits of a run.
const (
	MaxWorkers = 64
	stepTime   = 50 * time.Millisecond
)

// DefaultConfig is a run without a limit: Kills or For must be set.
func DefaultConfig() Config {
	return Config{
		Workers: 8, JobsAtOnce: 2, PerSecond: 4, JobTime: 1500 * time.Millisecond,
		Visibility: 4 * time.Second, CheckpointInterval: 200 * time.Millisecond,
		FreezeEvery: 20, EvictEvery: 10, CutEvery: 6, ProgramEvery: 4, LackEvery: 3, DuplicateEvery: 50, LargeEvery: 20, StreamEvery: 30,
	}
}

// Validate returns an error that says what to change, or nil.
func (c Config) Validate() error {
	switch {
	case c.Kills <= 0 && c.For <= 0:
		return errors.New("the run has no end: give --kills or --for")
	case c.Kills < 0 || c.For < 0:
		return errors.New("--kills and --for must not be negative")
	case c.Workers < 1 || c.Workers > MaxWorkers:
		return fmt.Errorf("--workers %d is out of range: give 1 to %d", c.Workers, MaxWorkers)
	case c.PerSecond <= 0 || c.PerSecond > 1000:
		return fmt.Errorf("--per-second %g is out of range: give more than 0, up to 1000", c.PerSecond)
	case c.ConnectionString == "":
		return nil
	}
	if err := lab.CheckStorage(c.ConnectionString); err != nil {
		return fmt.Errorf("a run kills workers and fills a storage account with jobs, so it only takes one on this machine: %w", err)
	}
	return nil
}
