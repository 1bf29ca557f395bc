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

// commandsPatience bounds a run.
const commandsPatience = 2 * time.Minute

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
	names := []string{"worker", "loop"}
	sides := map[string]func(context.Context, int) (time.Duration, error){
		"worker": func(ctx context.Context, n int) (time.Duration, error) { return b.runCommands(ctx, b.worker, kinds, n) },
		"loop": func(ctx context.Context, n int) (time.Duration, error) {
			cmd := command(ctx, nil, b.self, []string{"exec", "--runs", strconv.Itoa(n)})
			err := cmd.Run()
			return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
		},
	}
	if b.baseline != "" {
		before := "worker of " + b.Baseline
		names = append(names, before)
		sides[before] = func(ctx context.Context, n int) (time.Duration, error) {
			return b.runCommands(ctx, b.baseline, kinds, n)
		}
	}
	cost := map[string]values{}
	for round := range b.Rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			few, err1 := sides[name](ctx, fewCommands)
			many, err2 := sides[name](ctx, manyCommands)
			if err := errors.Join(err1, err2); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			each := float64((many - few).Microseconds()) / 1000 / (manyCommands - fewCommands)
			b.report("commands, %s, round %d: %.1f ms", name, round+1, each)
			cost[name] = append(cost[name], each)
		}
	}
	var table grid
	table.add("", "CPU a command, ms", "÷ loop")
	for _, name := range names {
		table.add(name, cost[name].show("%.1f"), cost[name].over(cost["loop"]).show("%.2f"))
	}
	b.say("## Commands\n\n`bash -c true`, as a job without a control group and alone, from the first on; all processes.\n\n%s", &table)
	return nil
}

// runCommands returns the processor time of a worker and its programs for that many commands.
func (b *bench) runCommands(ctx context.Context, binary, kinds string, commands int) (time.Duration, error) {
	s, err := b.startStorage(ctx, 0, commands, "--kind", commandKind)
	if err != nil {
		return 0, err
	}
	defer s.kill()
	p, err := b.startProcess(ctx, sideCore, []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}, binary,
		"--kinds-file", kinds, "--concurrency", "2", "--metadata-endpoint", "none", "--listen", "none")
	if err != nil {
		return 0, err
	}
	defer p.kill()
	for late := time.Now().Add(commandsPatience); ; time.Sleep(20 * time.Millisecond) {
		c, err := s.counts()
		if err != nil {
			return 0, err
		}
		if c.Done >= int64(commands) {
			break
		}
		if time.Now().After(late) {
			return 0, fmt.Errorf("%d of %d commands were done within %s", c.Done, commands, commandsPatience)
		}
	}
	time.Sleep(reapersEnd)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if err := p.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the worker ended: %w", err)
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime(), nil
}
