// Package completion makes shells complete the commands and flags of a program.
package completion

import (
	"fmt"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

// Variable is set by a shell that asks how a command line continues.
const Variable = "COMP_LINE"

// Command is the command that prints the code for a shell.
type Command struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`

	parsed *kong.Context
}

// Help is shown by completion --help.
func (*Command) Help() string {
	return `With the program's name for NAME: for this session of bash or zsh it takes
source <(NAME completion bash), of fish NAME completion fish | source. A line with that in the
shell's start file (~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish) makes it permanent.`
}

// AfterApply is called by kong when all flags are set.
func (c *Command) AfterApply(parsed *kong.Context) error {
	c.parsed = parsed
	return nil
}

// Print prints the code to the standard output of the parser.
func (c *Command) Print() error {
	if err := (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(c.parsed); err != nil {
		return fmt.Errorf("print the completion for %s: %w", c.Shell, err)
	}
	return nil
}

// Answer answers a shell that asks how a command line continues, and calls exit then.
func Answer(parser *kong.Kong, exit func(code int)) {
	kongcompletion.Register(parser, kongcompletion.WithExitFunc(exit))
}
