//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// The command of the table of commands, and its kind.
const (
	commandKind  = "true"
	commandKinds = `{"kinds": {"` + commandKind + `": {"command": ["bash", "-c", "true"]}}}`
)

// Commands of the two runs whose difference is measured: what both have, such as the start of the
// worker, does not count.
const (
	fewCommands  = 20
	manyCommands = 420
)

// reapersEnd is how long a worker keeps the processes that run its programs after the last one, and
// some more: before their end their time is not the worker's.
const reapersEnd = 11 * time.Second

// execCommand runs the command in a loop.
type execCommand struct {
	Runs int `help:"How often."`
}

// Run runs it one after another.
func (c *execCommand) Run(ctx context.Context) error {
	for range c.Runs {
		if err := exec.CommandContext(ctx, "bash", "-c", "true").Run(); err != nil {
			return err
		}
	}
	return nil
}

// measureCommands prints what a command costs as a job, beside a loop that runs it. Processor time
// is that of all processes.
func (b *bench) measureCommands(ctx context.Context) error {
	kinds := filepath.Join(b.folder, "commands.json")
	if err := os.WriteFile(kinds, []byte(commandKinds), 0o600); err != nil {
		return err
	}
	// each returns the processor time of one command.
	each := func(run func(commands int) (time.Duration, error)) ([]float64, error) {
		few, err1 := run(fewCommands)
		many, err2 := run(manyCommands)
		return []float64{float64((many - few).Microseconds()) / 1000 / (manyCommands - fewCommands)}, errors.Join(err1, err2)
	}
	sides := append(b.workers(func(ctx context.Context, binary string) ([]float64, error) {
		return each(func(n int) (time.Duration, error) { return b.runCommands(ctx, binary, kinds, n) })
	}), side{"loop", func(ctx context.Context) ([]float64, error) {
		return each(func(n int) (time.Duration, error) {
			cmd := b.command(ctx, sideCore, nil, b.self, []string{"exec", "--runs", strconv.Itoa(n)})
			err := cmd.Run()
			return used(cmd), err
		})
	}})
	t := &table{figures: []figure{{"CPU a command, ms", "%.1f", true}}}
	if err := b.compare(ctx, t, "bash -c true", sides...); err != nil {
		return err
	}
	b.print(t, "Commands", "As a job without a control group and alone, from the first on; all processes.")
	return nil
}

// runCommands returns the processor time of a worker and its programs for that many commands.
func (b *bench) runCommands(ctx context.Context, binary, kinds string, commands int) (time.Duration, error) {
	s, err := b.startStorage(ctx, 0, commands, commandKind)
	if err != nil {
		return 0, err
	}
	defer s.kill()
	p, err := b.startWorker(ctx, s, binary, "--kinds-file", kinds, "--concurrency", "2")
	if err != nil {
		return 0, err
	}
	defer p.kill()
	if err := s.await(storage.OpDeleteMessage, commands); err != nil {
		return 0, err
	}
	time.Sleep(reapersEnd)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if err := p.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the worker ended: %w", err)
	}
	return used(p.cmd), nil
}
