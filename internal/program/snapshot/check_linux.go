package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/printed"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/internal/program/tree"
)

// Find returns the path of criu.
func Find() (string, error) {
	path, err := exec.LookPath("criu")
	if err != nil {
		return "", errors.New("there is no criu in the worker's PATH: install it (Debian 13 has a package criu)")
	}
	return path, nil
}

// errFiltered is the error of a worker with a filter, which its programs inherit. Only root of
// the machine may read a filter, and criu has to.
var errFiltered = errors.New("the worker has a system call filter (seccomp), as in containers and systemd units, and CRIU cannot freeze " +
	"programs with one: on a VM of the package set SPOTWORKER_SNAPSHOTS=criu in worker.env, elsewhere run the worker without filter")

// isFiltered reports whether a process has a system call filter, by its /proc/PID/status.
func isFiltered(status []byte) bool {
	for line := range bytes.Lines(status) {
		if mode, ok := bytes.CutPrefix(line, []byte("Seccomp:")); ok {
			return string(bytes.TrimSpace(mode)) != "0"
		}
	}
	return false // a kernel without filters
}

// Check returns this machine, or an error that says why it can neither take nor restore
// snapshots of programs of a user: [ErrLost], an exhausted resource, or a refusal. dir is an empty folder of the user.
func Check(ctx context.Context, criu, dir string, user *sandbox.User) (machine.Facts, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return machine.Facts{}, err
	}
	if isFiltered(status) {
		return machine.Facts{}, errFiltered
	}
	cmd := tree.NewCommand([]string{"/proc/self/exe"}, tree.Limits{}) // InNamespaces replaces it
	cmd.Dir, cmd.Env = dir, []string{}
	s, err := NewSession(Config{CRIU: criu, Job: dir}, cmd)
	if err != nil {
		return machine.Facts{}, err
	}
	defer s.Close()
	out := printed.New(ctx, slog.New(slog.DiscardHandler))
	program, err := tree.Start(cmd, tree.Limits{}, nil, user, out)
	if err != nil {
		return machine.Facts{}, err
	}
	defer func() { program.Kill(); <-program.Exited(); out.Finish() }()
	s.program = request{Verb: verbCheck}
	_ = s.theirs.Close()
	answer, err := s.do(ctx, request{Verb: verbCheck, Job: dir, CRIU: criu, Limit: startLimit})
	failed, ok := errors.AsType[*os.PathError](err)
	switch {
	case errors.Is(err, ErrLost), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return machine.Facts{}, fmt.Errorf("the check of snapshots failed: %w", err)
	case errors.Is(err, errEnded), errors.Is(err, os.ErrDeadlineExceeded):
		return machine.Facts{}, fmt.Errorf("the check of snapshots failed: %w: %w", ErrLost, err)
	case ok:
		return machine.Facts{}, fmt.Errorf("this machine forbids the namespaces that a snapshot takes (user, PID and mount), as "+
			"containers and sandboxes do: on a VM of the package set SPOTWORKER_SNAPSHOTS=criu in worker.env: %s", failed.Err)
	case err != nil || answer.Machine == nil:
		return machine.Facts{}, fmt.Errorf("this machine cannot take snapshots: %w", err)
	}
	return *answer.Machine, nil
}
