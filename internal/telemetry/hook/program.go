package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"
)

// Variable is the environment variable with the name of the event.
const Variable = "SPOTWORKER_EVENT"

// runLimit is how long the program may take for an event.
const runLimit = 10 * time.Second

// program is the path of a program, and how long it may run.
type program struct {
	path  string
	limit time.Duration
}

// Program returns a Hook that runs a program: a path, or a name to look up in PATH. It
// takes no arguments. The Hook logs to log, writes attributes as replace returns them, and must
// be closed. An error says why the program cannot be run.
func Program(name string, replace func([]string, slog.Attr) slog.Attr, log *slog.Logger) (*Hook, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	h := start(program{path, runLimit}, log, closeLimit)
	h.replace = replace
	return h, nil
}

// run runs the program for an event, with the event's line as its input. It kills the program
// when ctx ends.
func (p program) run(ctx context.Context, event string, line []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	var output tail
	command := exec.CommandContext(ctx, p.path) //nolint:gosec // the operator named it
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(line), &output, &output
	command.Env = append(environment(), Variable+"="+event)
	command.WaitDelay = time.Second // for processes that the program leaves with its output
	ended, err := group(command)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = command.Run()
	ended()
	switch {
	case errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		return nil // it ended well, and left a process in the background
	case ctx.Err() != nil:
		err = fmt.Errorf("killed after %s", time.Since(begun).Round(time.Millisecond))
	}
	if err != nil {
		return output.explain(err)
	}
	return nil
}

// passed are the variables of the worker's environment that the program gets. All others
// are withheld, credentials above all. An address of a proxy may have a password.
var passed = []string{
	"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"PATHEXT", "SystemRoot", "SystemDrive", "ComSpec", "TEMP", "TMP", "ProgramData", "ProgramFiles", "PSModulePath",
}

func environment() (variables []string) {
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}
