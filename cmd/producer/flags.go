package main

import (
	"context"
	"fmt"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/cli"
)

// flags are the producer's settings. What describes a single job is never read
// from the environment: a job's own environment has variables of such names.
type flags struct {
	cli.Storage

	Parallel int              `help:"Jobs put at once, 1 to ${max_parallel}." default:"16" group:"Storage"`
	Version  kong.VersionFlag `help:"Print the version and exit." env:"-"`

	Put     putCommand     `cmd:"" help:"Put one job, described by flags."`
	Lines   linesCommand   `cmd:"" help:"Put the jobs of a file or of standard input, one JSON object per line."`
	Digests digestsCommand `cmd:"" help:"Put a digest job for each blob of a container."`

	command command
}

// command is one of the producer's commands.
type command interface {
	run(ctx context.Context, s *session) error
}

// maxParallel keeps a typing mistake from opening thousands of connections.
const maxParallel = 256

// AfterApply is called by kong when all flags are set. It notes which command
// was chosen.
func (f *flags) AfterApply(ctx *kong.Context) error {
	chosen, ok := reflect.TypeAssert[command](ctx.Selected().Target.Addr())
	if !ok {
		return fmt.Errorf("%s is not a command", ctx.Command())
	}
	f.command = chosen
	return nil
}

func (f *flags) check() error {
	if f.Parallel < 1 || f.Parallel > maxParallel {
		return &cli.ConfigError{Err: fmt.Errorf("--parallel is %d; it must be 1 to %d", f.Parallel, maxParallel)}
	}
	return nil
}
