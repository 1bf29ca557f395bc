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
	Seed               uint64        `help:"Seed of the random choices, to repeat the incidents of a run. 0 is a random one." default:"0"`
	Workers            int           `help:"Workers at a time, each the only one on its VM." default:"8"`
	JobsAtOnce         int           `help:"Jobs that each of them runs at a time." default:"2"`
	PerSecond          float64       `help:"Incidents a second, at most; a slow machine has fewer." default:"4"`
	JobTime            time.Duration `help:"How long a job takes without an incident." default:"1.5s"`
	Visibility         time.Duration `help:"${about_chaos_visibility}" default:"4s"`
	CheckpointInterval time.Duration `help:"The workers' flag of that name." default:"200ms"`
	FreezeEvery        int           `help:"Incidents for each freeze, on average. 0 is none." default:"20"`
	EvictEvery         int           `help:"Incidents for each eviction with notice, on average. 0 is none." default:"10"`
	CutEvery           int           `help:"${about_chaos_cut_every}" default:"6"`
	ProgramEvery       int           `help:"Jobs for each one that is a program, on average. 0 is none." default:"4"`
	LackEvery          int           `help:"Workers for each one that lacks the kind of programs. 0 is none." default:"3"`
	DuplicateEvery     int           `help:"Jobs for each one that is put twice, on average. 0 is none." default:"50"`
	LargeEvery         int           `help:"Jobs for each one whose payload is in a blob, on average. 0 is none." default:"20"`
	StreamEvery        int           `help:"Jobs for each one with a state of 3 MiB, on average. 0 is none." default:"30"`
	AnyMoment          bool          `help:"Kill at any moment only, as VMs die, and not at storage calls."`
	Keep               bool          `help:"Keep the logs of the last workers even if every promise was kept."`
}

// chaosStorage is the variable with the connection string of another storage
// account. It is not a flag: everybody on a machine can see command lines.
const chaosStorage = "SPOTWORKER_CHAOS_STORAGE"

// Help is shown by chaos --help.
func (*chaosCommand) Help() string {
	return `The workers are real processes. They are killed (SIGKILL) in the middle of their work, at
any moment or just before or after one of their storage calls takes effect, and replaced. Others are
frozen (SIGSTOP) until other workers have taken over their jobs, and then resumed; or evicted with
notice; or lose single requests, replies, or the connection to storage for seconds.

At the end comes a table of what happened and what was promised, judged by what storage did; exit
code 1 if a promise was broken. The seed decides what is drawn, but not where the processes are at
that moment.

` + chaosStorage + ` in the environment is the connection string of another storage emulator, such
as Azurite, on a loopback address; its queues must be empty.`
}

func (c *chaosCommand) run(ctx context.Context, stdout io.Writer) error {
	config := c.config()
	if err := config.Validate(); err != nil {
		return configError(err)
	}
	_, err := chaos.Run(ctx, config, stdout)
	return err
}

func (c *chaosCommand) config() chaos.Config {
	return chaos.Config{
		Kills: c.Kills, For: c.For, Seed: c.Seed, Workers: c.Workers, JobsAtOnce: c.JobsAtOnce, PerSecond: c.PerSecond,
		JobTime: c.JobTime, Visibility: c.Visibility, CheckpointInterval: c.CheckpointInterval,
		FreezeEvery: c.FreezeEvery, EvictEvery: c.EvictEvery, CutEvery: c.CutEvery, ProgramEvery: c.ProgramEvery, LackEvery: c.LackEvery,
		AnyMoment: c.AnyMoment, DuplicateEvery: c.DuplicateEvery, LargeEvery: c.LargeEvery, StreamEvery: c.StreamEvery,
		ConnectionString: os.Getenv(chaosStorage), Keep: c.Keep,
	}
}
