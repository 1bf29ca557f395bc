// Command lab tries the worker on a local Azure that runs in its own process.
// Run it with --help for its subcommands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/screen"
)

// version is set by the linker.
var version = "devel"

const description = `Tries the worker on a local Azure: storage and metadata service in this
process, on loopback addresses. Nothing is contacted beyond this machine.`

// command is the command line.
type command struct {
	Demo    demo             `cmd:"" help:"Evict and kill workers in the middle of real work, and count what came of the jobs. Ends by itself; exit code 1 if a promise did not hold."`
	Version kong.VersionFlag `help:"Print the version and exit."`
}

// demo are the flags of lab demo.
type demo struct {
	Workers            int           `help:"VMs that work at a time." default:"4"`
	JobsAtOnce         int           `help:"Jobs that each of them runs at a time." default:"2"`
	Files              int           `help:"Blobs of about 32 MiB, made of files of this machine, that are hashed, one job each." default:"16"`
	JobTime            time.Duration `help:"About how long a job takes: downloads are slowed down to that." default:"12s"`
	CheckpointInterval time.Duration `help:"Time between two saves of a job's state." default:"2s"`
	TimeLimit          time.Duration `help:"The demo fails if it takes longer." default:"2m"`
	Bin                string        `help:"Folder with worker and producer. Without it they are built from this source." placeholder:"DIR"`
	Keep               bool          `help:"Keep the workers' logs even if all goes well."`
	Plain              bool          `help:"Print lines only, also on a terminal."`
}

func main() {
	cli.Exit("lab", run(os.Args[1:], os.Stdout))
}

func run(args []string, stdout io.Writer) error {
	var c command
	program := cli.Program{Name: "lab", Description: description, Version: version}
	if done, err := program.Parse(&c, args, stdout); done || err != nil {
		return err
	}
	config := c.Demo.config()
	if err := config.Validate(); err != nil {
		return &cli.ConfigError{Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if out, ok := stdout.(*os.File); ok && !c.Demo.Plain && screen.Fits(os.Stdin, out) {
		return screen.Play(ctx, os.Stdin, out, func(ctx context.Context, stage *screen.Stage) error {
			config.Stage = stage
			return lab.Demo(ctx, config, stage)
		})
	}
	return lab.Demo(ctx, config, stdout)
}

func (d *demo) config() lab.Config {
	c := lab.DefaultConfig()
	c.Workers, c.JobsAtOnce, c.Files = d.Workers, d.JobsAtOnce, d.Files
	c.JobTime, c.CheckpointInterval, c.TimeLimit = d.JobTime, d.CheckpointInterval, d.TimeLimit
	c.Binaries, c.Keep = d.Bin, d.Keep
	return c
}
