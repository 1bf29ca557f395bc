// Command lab tries the worker on a local Azure that runs in its own process.
// Run it with --help for its subcommands.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/manual"
	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/lab/labworker"
)

// version is set by the linker, otherwise by main.
var version = cli.Devel

const description = `Tries the worker on a local Azure: storage, metadata service and resource
manager in this process, on loopback addresses. Nothing is contacted beyond this machine.`

// flags are the command line.
type flags struct {
	Demo     demoCommand      `cmd:"" help:"${about_demo}"`
	Chaos    chaosCommand     `cmd:"" help:"${about_chaos}"`
	Try      tryCommand       `cmd:"" help:"${about_try}"`
	Replay   replayCommand    `cmd:"" help:"${about_replay}"`
	Up       upCommand        `cmd:"" help:"Run a local Azure, and with --workers its workers, until Ctrl-C."`
	Evict    evictCommand     `cmd:"" help:"Announce the eviction of a VM of lab up, with 30 s of notice."`
	Withdraw withdrawCommand  `cmd:"" help:"Withdraw the eviction of a VM of lab up."`
	Stop     stopCommand      `cmd:"" help:"Let the storage account of lab up answer no call, as in an outage."`
	Start    startCommand     `cmd:"" help:"Let the storage account of lab up answer again."`
	IMDS     imdsCommand      `cmd:"" name:"imds" help:"${about_imds}"`
	Version  kong.VersionFlag `help:"Print the version and exit."`

	Man manCommand `cmd:"" help:"Print the manual page of lab."`

	cli.Format

	command command
}

// manCommand prints the manual page.
type manCommand struct{ manual.Command }

func (c *manCommand) run(context.Context, io.Writer) error { return c.Print() }

// inJSON is a subcommand whose output has a form in JSON.
type inJSON interface{ useJSON() }

// command is one of the subcommands.
type command interface {
	run(ctx context.Context, stdout io.Writer) error
}

// AfterApply is called by kong when all flags are set. It records the command.
func (f *flags) AfterApply(ctx *kong.Context) (err error) {
	f.command, err = cli.Chosen[command](ctx)
	return err
}

func main() {
	labworker.WorkerMain()
	chaos.WorkerMain()
	version = cli.Version(version)
	cli.Exit("lab", run(os.Args[1:], os.Stdout))
}

func run(args []string, stdout io.Writer) error {
	var f flags
	program := cli.Program{Name: "lab", Description: description, Version: version}
	if done, err := program.Parse(&f, args, stdout); done || err != nil {
		return err
	}
	if f.WantsJSON() {
		c, ok := f.command.(inJSON)
		if !ok {
			return configError(errors.New("this command prints a story for people and has no JSON; try, replay, compare, evict, withdraw, " +
				"stop and start have"))
		}
		c.useJSON()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return f.command.run(ctx, stdout)
}

// configError marks an error that other flags would avoid.
func configError(err error) error {
	if err == nil {
		return nil
	}
	return &cli.ConfigError{Err: err}
}

var errNoPort = errors.New("--metadata-port must be a port, 1 to 65535")
