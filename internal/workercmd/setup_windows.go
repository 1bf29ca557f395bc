package workercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/windows/winservice"
	"github.com/spotworker/spotworker/internal/windows/winsetup"
)

const packageDescription = `Installs, updates or removes the worker on a VM that runs Windows. The VM
application runs it in the folder that the package was unpacked into, with
worker.env beside it (docs/deploy.md). It takes an administrator.

Exit codes: 0 the worker runs, or is removed; 78 wrong configuration; 1 anything
else.`

// packageFlags are the command line of worker package.
type packageFlags struct {
	Install packageInstall `cmd:"" help:"Install this version and start it."`
	Update  packageUpdate  `cmd:"" help:"Replace the installed version by this one. One that does not start is undone."`
	Remove  packageRemove  `cmd:"" help:"Stop the worker and remove all of it."`
	Resume  packageResume  `cmd:"" hidden:"" help:"Repeat an installation that a reboot interrupted; a service does that."`

	chosen
}

type packageInstall struct{}

func (*packageInstall) run(ctx context.Context, _ Options, stdout io.Writer) error {
	return setUp(ctx, ".", stdout, (*winsetup.Setup).Install)
}

type packageUpdate struct{}

func (*packageUpdate) run(ctx context.Context, _ Options, stdout io.Writer) error {
	return setUp(ctx, ".", stdout, (*winsetup.Setup).Update)
}

type packageRemove struct{}

func (*packageRemove) run(ctx context.Context, _ Options, stdout io.Writer) error {
	return setUp(ctx, ".", stdout, (*winsetup.Setup).Remove)
}

type packageResume struct {
	Folder string `help:"Folder of the package." required:"" env:"-"`
}

func (c *packageResume) run(context.Context, Options, io.Writer) error {
	return winservice.Run(winservice.RunConfig{
		Name: winsetup.ResumeService, Describe: "spotworker's interrupted installation", Log: c.Folder, Task: true,
		ExitCode: cli.Code, Explain: azure.Explain, StayStopped: cli.ExitConfig,
		Work: func(ctx context.Context, _ *winservice.Service) error {
			return setUp(ctx, c.Folder, io.Discard, (*winsetup.Setup).Install)
		},
	})
}

// setUp runs a command of the VM application in the package's folder, alone on the
// machine.
func setUp(ctx context.Context, folder string, stdout io.Writer, do func(*winsetup.Setup, context.Context) error) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	err = withManager(winservice.OpenToInstall, func(m *winservice.Manager) error {
		const longest = 10 * time.Minute
		waiting, cancel := context.WithTimeoutCause(ctx, longest, errors.New("another command of the package runs"))
		defer cancel()
		unlock, err := winservice.Lock(waiting, winsetup.ResumeService)
		if err != nil {
			return err
		}
		defer unlock()
		return do(&winsetup.Setup{
			Package:  folder,
			Programs: filepath.Join(cmp.Or(os.Getenv("ProgramFiles"), `C:\Program Files`), "spotworker"),
			Data:     filepath.Join(cmp.Or(os.Getenv("ProgramData"), `C:\ProgramData`), "spotworker"),
			Services: m, Protect: winservice.Protect, DrainBudget: drainBudget, Out: stdout, Patience: setUpPatience,
		}, ctx)
	})
	if _, ok := errors.AsType[*winsetup.ConfigurationError](err); ok {
		return &cli.ConfigError{Err: err}
	}
	if err != nil {
		return fmt.Errorf("package: %w", err)
	}
	return nil
}

// setUpPatience is how long a worker may take to start while its port is taken, and
// a file to be closed by the program that holds it open.
const setUpPatience = 15 * time.Second
