// Package command has the payload of a job that runs the command which its message names.
// Workers, producers and package client share it.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/internal/text/lazyregexp"
)

// Kind is the name of the kind that workers have with --commands.
const Kind = "command"

// Stdout is the path of the output that has the standard output of a program, where that is
// not the job's result.
const Stdout = "stdout"

// Output is the folder in the working folder whose files are outputs.
const Output = "output"

// Command is a command with the files that it needs.
type Command struct {
	// Argv is the program, by its name or path, and its arguments.
	Argv []string `json:"argv"`

	// Environment is added to the program's environment.
	Environment map[string]string `json:"environment,omitempty"`

	// Files are inputs of the job that are placed in the working folder.
	Files []File `json:"files,omitempty"`

	// GPUs is how many GPUs the command gets; nil is as many as its kind says.
	GPUs *int `json:"gpus,omitempty"`

	// Outputs are patterns for files in the working folder that become outputs when the
	// command is done.
	Outputs []string `json:"outputs,omitempty"`
}

// File is an input that is placed in the working folder.
type File struct {
	// Input is its name in the folder of inputs.
	Input string `json:"input"`

	// Path is its place in the working folder, with slashes.
	Path string `json:"path"`

	// Executable makes the file executable.
	Executable bool `json:"executable,omitempty"`

	// Folder says that the input is an archive of package archive. Path is then the folder
	// that gets its content; "." is the working folder itself.
	Folder bool `json:"folder,omitempty"`
}

// Limits of a command.
const (
	maxText   = 128<<10 - 1 // bytes of an argument or a variable: Linux starts no program with a longer one
	maxTexts  = 1 << 20     // bytes of all of them; Linux takes 2 MiB, with the worker's variables
	mostGPUs  = 1000
	maxInline = 15 << 10 // bytes of JSON that a message always has room for
)

// fields are the names in the JSON of a command.
var fields = []string{"argv", "environment", "files", "gpus", "outputs"}

// example ends an error about a payload that is no command.
const example = `give {"argv": ["PROGRAM", "ARGUMENT"], "environment": {"NAME": "TEXT"}}`

// Parse reads a command, which is not trusted.
func Parse(payload []byte) (c Command, err error) {
	top, err := jsonpos.Parse(payload)
	members, isObject := top.Data.(jsonpos.Object)
	switch {
	case err != nil:
		return c, fmt.Errorf("it is not JSON: %w; %s", err, example)
	case !isObject:
		return c, fmt.Errorf("it is no JSON object; %s", example)
	}
	for _, m := range members { // encoding/json takes names in any case
		if !slices.Contains(fields, m.Name) {
			return c, fmt.Errorf("field %.40q is not known; known are %s", m.Name, strings.Join(fields, ", "))
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return c, fmt.Errorf("field %s is a JSON %s; %s", wrong.Field, wrong.Value, example)
		}
		return c, fmt.Errorf("%s; %s", strings.TrimPrefix(err.Error(), "json: "), example)
	}
	return c, c.Check()
}

// Check returns an error that says what to change, or nil.
func (c Command) Check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New(`no program is given: argv is empty, or its first element is. Give the program first, as in ` +
			`-- sh -c 'echo hello', or "argv": ["sh", "-c", "echo hello"] in JSON`)
	}
	size := 0
	for i, argument := range c.Argv {
		if err := checkText(argument); err != nil {
			return fmt.Errorf("argument %d of the command %w", i, err)
		}
		size += len(argument)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		if err := CheckVariable(name); err != nil {
			return err
		}
		if err := checkText(c.Environment[name]); err != nil {
			return fmt.Errorf("variable %s %w", name, err)
		}
		size += len(name) + len(c.Environment[name])
	}
	if size > maxTexts {
		return fmt.Errorf("arguments and environment have %d bytes; at most %d are allowed: put the data in a file", size, maxTexts)
	}
	if err := c.checkGPUs(); err != nil {
		return err
	}
	return c.checkFiles()
}

// checkGPUs also bounds the command: a worker reserves GPUs before it reads a payload that is not in
// the message.
func (c Command) checkGPUs() error {
	if c.GPUs == nil {
		return nil
	}
	raw, err := json.Marshal(c)
	switch {
	case err != nil:
		return err
	case *c.GPUs < 0 || *c.GPUs > mostGPUs:
		return fmt.Errorf("gpus is %d; it must be 0 to %d", *c.GPUs, mostGPUs)
	case len(raw) > maxInline:
		return fmt.Errorf("a command with gpus has %d bytes; at most %d are allowed: put the data in a file", len(raw), maxInline)
	}
	return nil
}

func checkText(text string) error {
	switch {
	case strings.ContainsRune(text, 0):
		return errors.New("has a NUL, which no program can be given")
	case !utf8.ValidString(text):
		return errors.New("is no valid UTF-8, which a message needs: put it in a file")
	case len(text) > maxText:
		return fmt.Errorf("has %d bytes; at most %d are allowed: put the data in a file", len(text), maxText)
	}
	return nil
}

func (c Command) checkFiles() error {
	taken := map[string]bool{} // and whether that is a folder
	for _, f := range c.Files {
		_, twice := taken[f.Path]
		switch {
		case !fs.ValidPath(f.Input) || f.Input == ".":
			return fmt.Errorf("files: %.200q is no name of an input", f.Input)
		case !fs.ValidPath(f.Path) || strings.ContainsAny(f.Path, "\\\x00") || f.Path == "." && !f.Folder:
			return fmt.Errorf("files: %.200q is no path in the working folder: give a relative path with slashes, without the parts . and .. in it",
				f.Path)
		case f.Folder && f.Executable:
			return fmt.Errorf("files: %.200q is a folder, whose files have modes of their own: leave out executable", f.Path)
		case twice:
			return fmt.Errorf("files: %.200q is the place of two files", f.Path)
		case f.Path == Output && !f.Folder:
			return fmt.Errorf("files: %q is the folder of the command's outputs: give the file another name", Output)
		}
		taken[f.Path] = f.Folder
	}
	for _, f := range c.Files {
		if err := checkParents(f.Path, taken); err != nil {
			return err
		}
	}
	return nil
}

// checkParents returns an error if a path is below a file. isFolder has the paths that are taken.
func checkParents(of string, isFolder map[string]bool) error {
	for dir := path.Dir(of); dir != "."; dir = path.Dir(dir) {
		if folder, isTaken := isFolder[dir]; isTaken && !folder {
			return fmt.Errorf("files: %.200q is a file, and cannot have %.200q in it", dir, of)
		}
	}
	return nil
}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariable reports whether a text is the name of an environment variable.
func IsVariable(name string) bool { return variableName().MatchString(name) }

var (
	// workers are variables that the worker sets for a program, beside SPOTWORKER_*.
	workers = []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "TRACEPARENT"}

	// starters change what the dynamic linker and the shell do that set the limits of a
	// program before it starts.
	starters = []string{"ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "PS4", "IFS", "GLIBC_TUNABLES"}
)

// CheckVariable returns an error if a message cannot set an environment variable. Case does not
// count, since it does not on Windows.
func CheckVariable(name string) error {
	upper := strings.ToUpper(name)
	switch {
	case !IsVariable(name):
		return fmt.Errorf("%.80q is not the name of a variable: give letters, digits and _", name)
	case strings.HasPrefix(upper, "SPOTWORKER_"), slices.Contains(workers, upper):
		return fmt.Errorf("variable %.80s is the worker's: a message cannot set it", name)
	case strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"), slices.Contains(starters, upper):
		return fmt.Errorf("variable %.80s would change how the worker starts the command: set it in the command, as in env %s=TEXT PROGRAM",
			name, name)
	}
	return nil
}

// exitForm are the words of package tree and of [WithCode] about how a command ended.
var exitForm = lazyregexp.New(`the command exited with code (\d{1,10})|\(exit code (\d{1,10})\)`)

// WithCode adds the exit code of a command to words about its end that do not have it.
func WithCode(text string, code int) string {
	if exitForm().MatchString(text) {
		return text
	}
	return fmt.Sprintf("%s (exit code %d)", text, code)
}

// ExitCode returns the exit code that the reason of a job's failure has. What a program has
// printed comes behind it.
func ExitCode(reason string) (code int, ok bool) {
	match := exitForm().FindStringSubmatch(reason)
	if match == nil {
		return 0, false
	}
	code, err := strconv.Atoi(match[1] + match[2])
	return code, err == nil
}
