package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Places in bench.cores.
const (
	sideCore = iota
	storageCore
)

// bench is one run.
type bench struct {
	*runCommand
	out, progress io.Writer
	self          string // this program
	root          string // of the repository
	folder        string // for binaries and logs
	cores         []int  // that may be used
	pinned        bool   // whether each process is bound to a core
	worker        string // the binary with the kind that does nothing
	producer      string
	baseline      string // the worker of that revision; empty without one
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
		runCommand: c, out: os.Stdout, progress: os.Stderr, self: self, root: root, folder: folder, cores: cores(),
		worker: filepath.Join(folder, "worker"), producer: filepath.Join(folder, "producer"),
	}
	b.pinned = len(b.cores) >= 2
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
	for _, part := range []string{"noop", "probe"} {
		target := filepath.Join(tree, "bench", part)
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.CopyFS(target, os.DirFS(filepath.Join(b.root, "bench", part))); err != nil {
			return err
		}
	}
	binary := filepath.Join(b.folder, "worker-baseline")
	if _, err := output(ctx, tree, "go", "build", "-o", binary, "./bench/noop"); err != nil {
		return err
	}
	b.baseline = binary
	return nil
}

// close removes the programs that newBench built.
func (b *bench) close() error { return os.RemoveAll(b.folder) }

// introduce says what runs where.
func (b *bench) introduce() {
	place := "GOMAXPROCS=1 for each, not bound to cores"
	if b.pinned {
		place = fmt.Sprintf("the storage on core %d, what is measured on core %d, GOMAXPROCS=1", b.cores[storageCore], b.cores[sideCore])
		if b.Priority != 0 {
			place += fmt.Sprintf(", nice value %d", b.Priority)
		}
	}
	b.say("%s, %s/%s, %d cores; %s. %d rounds, %s each; median, and in brackets the lowest and highest. Load of the machine at the "+
		"start: %s.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), place, b.Rounds, b.Window, load())
}

// say prints a line of the result.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

// report prints what happens now.
func (b *bench) report(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
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

// values are the measurements of one thing, one for each round.
type values []float64

// median returns the value in the middle, 0 without any.
func (v values) median() float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// over returns the ratios of v and other, round by round, since the two were measured
// one after the other.
func (v values) over(other values) values {
	var ratios values
	for i := range min(len(v), len(other)) {
		if other[i] > 0 {
			ratios = append(ratios, v[i]/other[i])
		}
	}
	return ratios
}

// show prints the median and, where there are several values, the lowest and highest.
func (v values) show(format string) string {
	switch len(v) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf(format, v[0])
	}
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", v.median(), slices.Min(v), slices.Max(v))
}

// grid is a table in Markdown.
type grid struct {
	rows [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// String implements [fmt.Stringer]. The first row is the head.
func (g *grid) String() string {
	var text strings.Builder
	for i, row := range g.rows {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			text.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return text.String()
}
