package workercmd

import (
	"io"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/manual"
)

// workerLine is the command line of the program, for its manual page.
type workerLine struct {
	flags

	Service struct{}       `cmd:"" help:"Install and control the service of Windows."`
	Package struct{}       `cmd:"" help:"Install, update or remove the worker on a VM that runs Windows."`
	Man     manual.Command `cmd:"" help:"Print the manual page of worker."`
}

// HelpTexts implements [cli.WithTexts].
func (*workerLine) HelpTexts() cli.Texts { return texts }

// runMan prints the manual page.
func runMan(o Options, stdout io.Writer) error {
	var worker workerLine
	if done, err := workerProgram(cli.Version(o.Version, version)).Parse(&worker, o.Arguments, stdout); done || err != nil {
		return err
	}
	return worker.Man.Print()
}
