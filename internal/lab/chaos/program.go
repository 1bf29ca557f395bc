package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// programCommand is the first argument that makes the lab the program of a
	// job, as docs/jobs.md describes programs.
	programCommand = "chaos-program"

	// programKind is the kind whose jobs are programs. Some workers lack it.
	programKind = "program"
)

// writeKindsFile writes the kinds file of the workers that have [programKind], and
// returns its path.
func writeKindsFile(folder, program string) (string, error) {
	type kind struct {
		Command []string `json:"command"`
	}
	raw, err := json.Marshal(map[string]map[string]kind{"kinds": {programKind: {[]string{program, programCommand}}}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "kinds.json")
	return name, os.WriteFile(name, raw, 0o600)
}

// tempFail is the exit code of a program that was interrupted.
const tempFail = 75

// programMain does the work of [Steps] as a program. It returns its exit code.
func programMain() int {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	err := runProgram(stopped)
	if errors.Is(err, errStopped) {
		return tempFail
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var errStopped = errors.New("asked to stop")

// runProgram does the remaining steps, with a checkpoint after each, until it is
// done or stopped.
func runProgram(stopped <-chan os.Signal) error {
	raw, err := os.ReadFile(os.Getenv("SPOTWORKER_PAYLOAD"))
	if err != nil {
		return err
	}
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	at, err := p.restore(os.Getenv("SPOTWORKER_RESTORE"))
	if err != nil {
		return err
	}
	for at.Step < p.Steps {
		select {
		case <-stopped:
			return errStopped
		case <-time.After(p.Each):
		}
		at = at.next()
		state, err := json.Marshal(at)
		if err != nil {
			return err
		}
		if err := putFile("SPOTWORKER_CHECKPOINT", state); err != nil {
			return err
		}
	}
	return putFile("SPOTWORKER_RESULT", at.result())
}

// restore returns where to resume, after comparing the checkpoint with the hash
// chain of its step.
func (p payload) restore(file string) (at position, err error) {
	if file == "" {
		return p.start(), nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return position{}, err
	}
	if json.Unmarshal(raw, &at) != nil || !bytes.Equal(at.Chain, p.after(at.Step).Chain) {
		return position{}, errMixed
	}
	return at, nil
}

// putFile writes a file and renames it to the path in a variable.
func putFile(variable string, content []byte) error {
	name := filepath.Join(os.Getenv("TMPDIR"), variable)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return err
	}
	return os.Rename(name, os.Getenv(variable))
}
