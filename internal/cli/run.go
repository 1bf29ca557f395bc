package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/durations"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Exit codes of all commands.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitChange = 2  // a comparison found something to change; for schedules
	ExitConfig = 78 // EX_CONFIG of sysexits.h; the systemd unit does not restart on it
)

// envPrefix starts the environment variable of every flag.
const envPrefix = "SPOTWORKER"

// ConfigError marks an error that only a change of the configuration can fix.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// ChangeError is the outcome of a comparison that found something to change.
type ChangeError struct{ Err error }

func (e *ChangeError) Error() string { return e.Err.Error() }
func (e *ChangeError) Unwrap() error { return e.Err }

// Program describes the program whose command line is parsed.
type Program struct {
	Name, Description, Version string

	// Vars are the variables in the tags of the flags, as in ${name}.
	Vars map[string]string
}

// Parse fills flags, a struct for kong, from arguments and environment. done is
// true when help or the version was printed, and there is nothing left to do.
func (p Program) Parse(flags any, args []string, stdout io.Writer) (done bool, err error) {
	if len(args) == 1 && args[0] == "--version" { // at once: scripts ask often
		_, err = fmt.Fprintln(stdout, p.versionText())
		return true, err
	}
	for _, arg := range args { // which the parser would change
		if !utf8.ValidString(arg) {
			return false, &ConfigError{fmt.Errorf("argument %.200q is not UTF-8: rename the file, or put the data in one", arg)}
		}
	}
	exited := false
	parser, err := p.parser(flags, kong.Writers(stdout, io.Discard), kong.Exit(func(int) { exited = true }))
	if err != nil {
		return false, err
	}
	parsed, err := parser.Parse(args)
	if err == nil && !exited {
		err = refuseEmpty(parsed)
	}
	switch {
	case exited:
		return true, nil
	case err != nil:
		return false, &ConfigError{fmt.Errorf("%w (%s --help lists the flags)", explainEmpty(args, err), p.Name)}
	}
	return false, nil
}

func (p Program) versionText() string { return p.Name + " " + p.Version }

// refuseEmpty returns an error if a flag or an argument of the command line is empty. It would count
// as not given: with an unset variable of the shell, cancel --group "$NIGHT" would cancel the jobs of
// all groups. A variable of the environment that is empty counts as not set.
func refuseEmpty(parsed *kong.Context) error {
	for _, p := range parsed.Path {
		switch {
		case p.Resolved:
		case p.Flag != nil && hasEmpty(reflect.ValueOf(parsed.FlagValue(p.Flag))):
			return emptyFlag("--" + p.Flag.Name)
		case p.Positional != nil && p.Positional.Passthrough: // a command of others, whose arguments may be empty
		case p.Positional != nil && hasEmpty(p.Positional.Target):
			return fmt.Errorf("%s is empty, as with a variable of the shell that is not set: give a value", p.Positional.Summary())
		}
	}
	return nil
}

func emptyFlag(flag string) error {
	return fmt.Errorf("%s is given and empty, as with a variable of the shell that is not set: give a value, or leave the flag out", flag)
}

// explainEmpty explains an error of parsing that is about a number or a duration which is empty.
func explainEmpty(args []string, err error) error {
	for i, arg := range args {
		flag, value, hasValue := strings.Cut(arg, "=")
		if !hasValue && i+1 < len(args) {
			value, hasValue = args[i+1], true
		}
		if hasValue && value == "" && strings.HasPrefix(err.Error(), flag+": ") {
			return emptyFlag(flag)
		}
	}
	return err
}

// hasEmpty reports whether a value is an empty text, or a list that has one or nothing.
func hasEmpty(v reflect.Value) bool {
	switch v.Kind() { //nolint:exhaustive // no other value can be empty
	case reflect.String:
		return v.Len() == 0
	case reflect.Slice:
		for i := range v.Len() {
			if hasEmpty(v.Index(i)) {
				return true
			}
		}
		return v.Len() == 0
	}
	return false
}

// parser reads command lines of the program into flags.
func (p Program) parser(flags any, more ...kong.Option) (*kong.Kong, error) {
	vars := kong.Vars{"version": p.versionText()}
	maps.Copy(vars, p.Vars)
	parser, err := kong.New(flags, append(more,
		kong.Name(p.Name), kong.Description(p.Description), kong.DefaultEnvars(envPrefix), kong.PostBuild(ignoreVersionVariable),
		kong.PostBuild(fillTexts(flags)), vars, kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("build the command line: %w", err)
	}
	return parser, nil
}

// decodeDuration reads a flag that is a duration, with days too.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := durations.Parse(text)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// Chosen returns the selected subcommand as a C. Call it in AfterApply of the flags.
func Chosen[C any](ctx *kong.Context) (C, error) {
	chosen, ok := reflect.TypeAssert[C](ctx.Selected().Target.Addr())
	if !ok {
		return chosen, fmt.Errorf("%s is not a command", ctx.Command())
	}
	return chosen, nil
}

// ignoreVersionVariable keeps --version from being set in the environment: with a
// variable SPOTWORKER_VERSION, set for something else, a worker would print its
// version and exit with 0.
func ignoreVersionVariable(k *kong.Kong) error {
	for _, flag := range k.Model.Flags {
		if flag.Name == "version" {
			flag.Envs, flag.Tag.Envs = nil, nil
		}
	}
	return nil
}

// Exit prints err, if there is one, and exits with its code.
func Exit(name string, err error) {
	if err == nil {
		os.Exit(ExitOK)
	}
	if status, ok := errors.AsType[*StatusError](err); ok && status.Err == nil {
		os.Exit(status.Code)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, plaintext.Message(azure.Explain(err)))
	os.Exit(Code(err))
}

// StatusError ends a program with an exit code of its own. Without Err it prints nothing.
type StatusError struct {
	Code int
	Err  error
}

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *StatusError) Unwrap() error { return e.Err }

// Code returns the exit code for err.
func Code(err error) int {
	if err == nil {
		return ExitOK
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return ExitConfig
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Code
	}
	if _, ok := errors.AsType[*ChangeError](err); ok {
		return ExitChange
	}
	return ExitFailed
}
