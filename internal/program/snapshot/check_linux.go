package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/printed"
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

// Check returns this machine, or an error that says why it can neither take nor restore
// snapshots of programs of a user. dir is an empty folder of the user.
func Check(ctx context.Context, criu, dir string, user *sandbox.User) (Machine, error) {
	cmd := tree.NewCommand([]string{"/proc/self/exe"}, tree.Limits{}) // InNamespaces replaces it
	cmd.Dir, cmd.Env = dir, []string{}
	s, err := NewSession(Config{CRIU: criu, Job: dir}, cmd)
	if err != nil {
		return Machine{}, err
	}
	defer s.Close()
	out := printed.New(ctx, slog.New(slog.DiscardHandler))
	program, err := tree.Start(cmd, tree.Limits{}, nil, user, out)
	if err != nil {
		return Machine{}, fmt.Errorf("this machine forbids the namespaces that a snapshot takes (user, PID and mount), as "+
			"containers and sandboxes do: run the worker on the machine itself, in a unit that allows them: %w", err)
	}
	defer func() { program.Kill(); <-program.Exited(); out.Finish() }()
	s.program = request{Verb: verbCheck}
	_ = s.theirs.Close()
	answer, err := s.do(ctx, request{Verb: verbCheck, Job: dir, CRIU: criu, Limit: startLimit})
	if err != nil || answer.Machine == nil {
		return Machine{}, fmt.Errorf("this machine cannot take snapshots: %w", err)
	}
	return *answer.Machine, nil
}
