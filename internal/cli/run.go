package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes of all commands.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitConfig = 78 // EX_CONFIG of sysexits.h; the systemd unit does not restart on it
)

// envPrefix starts the environment variable of every flag.
const envPrefix = "SPOTWORKER"

// ConfigError marks an error as one that only a change of the configuration
// can mend.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Parse fills flags, a struct for kong, from arguments and environment. done is
// true when help or the version was printed, and there is nothing left to do.
func Parse(flags any, name, description, version string, args []string, stdout io.Writer) (done bool, err error) {
	exited := false
	parser, err := kong.New(flags,
		kong.Name(name), kong.Description(description), kong.DefaultEnvars(envPrefix),
		kong.Vars{"version": name + " " + version},
		kong.Writers(stdout, io.Discard), kong.Exit(func(int) { exited = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return false, fmt.Errorf("build the command line: %w", err)
	}
	_, err = parser.Parse(args)
	switch {
	case exited:
		return true, nil
	case err != nil:
		return false, &ConfigError{fmt.Errorf("%w (%s --help lists the flags)", err, name)}
	}
	return false, nil
}

// Exit ends the program with the code that err stands for, after saying in one
// line what is wrong.
func Exit(name string, err error) {
	if err == nil {
		os.Exit(ExitOK)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, Explain(err))
	os.Exit(Code(err))
}

// Code returns the exit code that err stands for.
func Code(err error) int {
	var config *ConfigError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &config):
		return ExitConfig
	default:
		return ExitFailed
	}
}

// oneLine keeps an error from taking more than a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
