//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Places in bench.cores.
const (
	sideCore = iota
	storageCore
)

// patience bounds each step of a measurement.
const patience = 5 * time.Minute

// bench is one run.
type bench struct {
	*runCommand
	self, root string // this program, and the repository
	folder     string // for binaries and logs
	cores      []int  // that may be used; each process is bound to one if there are two
	free       bool   // processes use all cores
	worker     string // the binary with the kinds of bench/noop
	baseline   string // the worker of that revision; empty without one
	producer   string
}

// newBench builds the programs to measure.
func newBench(ctx context.Context, c *runCommand) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "spotworker-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{
		runCommand: c, self: self, root: root, folder: folder, cores: cores(),
		worker: filepath.Join(folder, "worker"), producer: filepath.Join(folder, "producer"),
	}
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) build(ctx context.Context) error {
	b.report("building")
	for binary, source := range map[string]string{b.worker: "./bench/noop", b.producer: "./cmd/producer"} {
		if _, err := output(ctx, b.root, "go", "build", "-o", binary, source); err != nil {
			return err
		}
	}
	if b.Baseline == "" {
		return nil
	}
	return b.buildBaseline(ctx)
}

// buildBaseline builds the same program with the worker of another revision.
func (b *bench) buildBaseline(ctx context.Context) (err error) {
	tree := filepath.Join(b.folder, "baseline")
	if _, err := output(ctx, b.root, "git", "worktree", "add", "--detach", tree, b.Baseline); err != nil {
		return err
	}
	defer func() {
		_, removing := output(ctx, b.root, "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, removing)
	}()
	kinds := filepath.Join(tree, "bench", "noop")
	if err := os.RemoveAll(kinds); err != nil {
		return err
	}
	if err := os.CopyFS(kinds, os.DirFS(filepath.Join(b.root, "bench", "noop"))); err != nil {
		return err
	}
	b.baseline = filepath.Join(b.folder, "worker-baseline")
	_, err = output(ctx, tree, "go", "build", "-o", b.baseline, "./bench/noop")
	return err
}

// close removes the programs that newBench built.
func (b *bench) close() error { return os.RemoveAll(b.folder) }

// introduce says what runs where.
func (b *bench) introduce() {
	place := "GOMAXPROCS=1 for each, not bound to cores"
	if b.pinned() {
		place = fmt.Sprintf("the storage on core %d, what is measured on core %d, GOMAXPROCS=1", b.cores[storageCore], b.cores[sideCore])
	}
	b.say("%s, %s, %d cores; %s (hand-overs: all cores). %d rounds, %s each; median, and in brackets the lowest and highest. "+
		"Load of the machine at the start: %s.\n",
		runtime.Version(), runtime.GOARCH, runtime.NumCPU(), place, b.Rounds, b.Window, load())
}

func (b *bench) pinned() bool { return len(b.cores) >= 2 && !b.free }

// onAllCores returns the same run with processes that use all cores.
func (b *bench) onAllCores() *bench {
	all := *b
	all.free = true
	return &all
}

// cores returns the cores that this process may use.
func cores() (list []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// say prints a line of the result, and report what happens now.
func (*bench) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*bench) report(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// output runs a program and returns its output. The error has its last words.
func output(ctx context.Context, folder, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // programs that bench names
	cmd.Dir = folder
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(failed.Bytes()))
	}
	return strings.TrimSpace(said.String()), nil
}

// within asks until done reports true, for at most [patience].
func within(otherwise string, done func() (bool, error)) error {
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		switch ok, err := done(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(late):
			return fmt.Errorf("%s within %s", otherwise, patience)
		}
	}
}
