package workercmd

import (
	"io"
	"os"
	"strings"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/completion"
	"github.com/spotworker/spotworker/internal/cli/manual"
)

// The command lines of the program, for shells that complete them. They are three, since
// commands have flags of the same names as the worker itself.
type (
	workerLine struct {
		flags

		Service    struct{}           `cmd:"" help:"Install and control the service of Windows."`
		Package    struct{}           `cmd:"" help:"Install, update or remove the worker on a VM that runs Windows."`
		Completion completion.Command `cmd:"" help:"Print what makes a shell complete the commands and flags of worker."`
		Man        manual.Command     `cmd:"" help:"Print the manual page of worker."`
	}
	serviceLine struct {
		Service serviceFlags `cmd:""`
	}
	packageLine struct {
		Package packageFlags `cmd:""`
	}
)

// HelpTexts implements [cli.WithTexts].
func (*workerLine) HelpTexts() cli.Texts { return texts }

// HelpTexts implements [cli.WithTexts].
func (*serviceLine) HelpTexts() cli.Texts { return texts }

// HelpTexts implements [cli.WithTexts].
func (*packageLine) HelpTexts() cli.Texts { return texts }

// completionCommand prints the code for a shell, or answers a shell that asks how a command
// line continues.
func completionCommand(o Options) error {
	return runCompletion(o, os.Getenv(completion.Variable), os.Stdout)
}

// runCompletion answers for a line, or without one prints the code for a shell.
func runCompletion(o Options, line string, stdout io.Writer) error {
	program := workerProgram(cli.Version(o.Version, version))
	program.Prepare = completion.Answer
	var worker workerLine
	flags := any(&worker)
	if words := strings.Fields(line + "_"); len(words) > 2 { // "_" stands for the word that is completed
		switch words[1] {
		case "service":
			flags = &serviceLine{}
		case "package":
			flags = &packageLine{}
		}
	}
	if done, err := program.Parse(flags, o.Arguments, stdout); done || err != nil {
		return err
	}
	return worker.Completion.Print()
}

// manCommand prints the manual page.
func manCommand(o Options) error { return runMan(o, os.Stdout) }

func runMan(o Options, stdout io.Writer) error {
	var worker workerLine
	if done, err := workerProgram(cli.Version(o.Version, version)).Parse(&worker, o.Arguments, stdout); done || err != nil {
		return err
	}
	return worker.Man.Print()
}
