package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/lab/chaos"
)

// chaosCommand are the flags of lab chaos.
type chaosCommand struct {
	Kills              int           `help:"End after that many kills. 0 is no limit." default:"0"`
	For                time.Duration `help:"End after that time. 0s is no limit." default:"0s"`
	Seed               uint64        `help:"Draw the incidents of that run again. 0 is another one each time." default:"0"`
	Workers            int           `help:"Workers at a time, each the only one on its VM." default:"8"`
	JobsAtOnce         int           `help:"Jobs that each of them runs at a time." default:"2"`
	PerSecond          float64       `help:"Kills a second, at most; the machine may not keep up." default:"4"`
	JobTime            time.Duration `help:"How long a job takes when nothing happens to it." default:"1.5s"`
	Visibility         time.Duration `help:"The workers' flag of that name: after what time the jobs of a dead worker go on." default:"4s"`
	CheckpointInterval time.Duration `help:"The workers' flag of that name." default:"200ms"`
	FreezeEvery        int           `help:"About how many incidents there are for one freeze. 0 is none." default:"20"`
	EvictEvery         int           `help:"About how many incidents there are for one eviction with notice. 0 is none." default:"10"`
	CutEvery           int           `help:"About how many incidents there are for one worker that is cut off from storage, or whose calls are reset, swallowed or delayed. 0 is none." default:"6"`
	ProgramEvery       int           `help:"About how many jobs there are for one that is a program. 0 is none." default:"4"`
	LackEvery          int           `help:"How many workers there are for one that lacks the kind of programs. 0 is none." default:"3"`
	DuplicateEvery     int           `help:"About how many jobs there are for one that is put twice. 0 is none." default:"50"`
	LargeEvery         int           `help:"About how many jobs there are for one whose payload is in a blob. 0 is none." default:"20"`
	StreamEvery        int           `help:"About how many jobs there are for one with a state of 3 MiB. 0 is none." default:"30"`
	Keep               bool          `help:"Keep the logs of the last workers even if all goes well."`
}

// chaosStorage names the storage account of a run, where it is not the lab's own.
// It is no flag: command lines are visible to everybody on a machine.
const chaosStorage = "SPOTWORKER_CHAOS_STORAGE"

// Help is shown by chaos --help.
func (*chaosCommand) Help() string {
	return `The workers are real processes that end by SIGKILL in the middle of their work, at any moment or just before or after one of their storage calls takes effect. Each is replaced. Others are stopped (SIGSTOP) until their jobs are in other hands, and go on; or lose single requests, replies, or the way to storage for seconds.

At the end comes a table of what happened and what was promised, from what storage was seen to do; exit code 1 if a promise did not hold. The seed decides what is drawn; where the processes are at that moment, the machine does.

` + chaosStorage + ` in the environment is the connection string of another storage emulator, such as Azurite, on a loopback address; it must be empty.`
}

func (c *chaosCommand) run(ctx context.Context, stdout io.Writer) error {
	config := c.config()
	if err := config.Validate(); err != nil {
		return configError(err)
	}
	return chaos.Run(ctx, config, stdout)
}

func (c *chaosCommand) config() chaos.Config {
	return chaos.Config{
		Kills: c.Kills, For: c.For, Seed: c.Seed, Workers: c.Workers, JobsAtOnce: c.JobsAtOnce, PerSecond: c.PerSecond,
		JobTime: c.JobTime, Visibility: c.Visibility, CheckpointInterval: c.CheckpointInterval,
		FreezeEvery: c.FreezeEvery, EvictEvery: c.EvictEvery, CutEvery: c.CutEvery, ProgramEvery: c.ProgramEvery, LackEvery: c.LackEvery,
		DuplicateEvery: c.DuplicateEvery, LargeEvery: c.LargeEvery, StreamEvery: c.StreamEvery,
		ConnectionString: os.Getenv(chaosStorage), Keep: c.Keep,
	}
}
