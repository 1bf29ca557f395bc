// Command spotctl operates a deployment: it lists, replays and purges jobs that were
// given up, and requeues jobs whose messages were lost. Run it with --help for its
// commands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
)

// version is set by the linker.
var version = "devel"

const description = `Operates a deployment of spotworker.

Flags for storage can also be set in the environment, as SPOTWORKER_ and the
flag's name (--prefix is SPOTWORKER_PREFIX). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

Exit codes: 0 done, 78 wrong flags or configuration, 1 anything else.`

// flags are the command line.
type flags struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`
	Output  string           `short:"o" help:"Form of the output: ${enum}. json is one object per line, for scripts." enum:"text,json" default:"text" env:"-"`

	cli.Storage

	Poison poisonCommands `cmd:"" help:"Jobs that were given up: list, show, replay or purge them."`

	Orphans orphansCommands `cmd:"" help:"Jobs whose messages were lost: list them, or put them on the queue again."`

	command command
}

// command is one of the program's commands.
type command interface {
	run(ctx context.Context, s *session) error
}

// AfterApply records the chosen command. It is called by kong when all flags are set.
func (f *flags) AfterApply(ctx *kong.Context) (err error) {
	f.command, err = cli.Chosen[command](ctx)
	return err
}

// session is the context of a command: its flags and its output.
type session struct {
	printer *printer
	flags   *flags
}

func main() {
	cli.Exit("spotctl", run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var f flags
	program := cli.Program{Name: "spotctl", Description: description, Version: version}
	if done, err := program.Parse(&f, args, stdout); done || err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return f.command.run(ctx, &session{printer: newPrinter(&f, stdin, stdout, stderr), flags: &f})
}

// name is recorded as the last writer of records that are changed.
func name() string {
	host, err := os.Hostname()
	if err != nil {
		return "spotctl"
	}
	return "spotctl@" + host
}
