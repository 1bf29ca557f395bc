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
	Kills     int           `help:"End after that many kills. 0 is no limit." default:"0"`
	For       time.Duration `help:"End after that time. 0s is no limit." default:"0s"`
	Seed      uint64        `help:"Seed of the random choices, to repeat the incidents of a run. 0 is a random one." default:"0"`
	Workers   int           `help:"Workers at a time, each the only one on its VM." default:"8"`
	PerSecond float64       `help:"Incidents a second, at most; a slow machine has fewer." default:"4"`
	Keep      bool          `help:"Keep the logs of the last workers even if every promise was kept."`
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
	config := chaos.DefaultConfig()
	config.Kills, config.For, config.Seed, config.Workers, config.PerSecond = c.Kills, c.For, c.Seed, c.Workers, c.PerSecond
	config.ConnectionString, config.Keep = os.Getenv(chaosStorage), c.Keep
	if err := config.Validate(); err != nil {
		return configError(err)
	}
	_, err := chaos.Run(ctx, config, stdout)
	return err
}
