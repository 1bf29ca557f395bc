//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

const (
	// checkpointFileMiB is the size of each file in a checkpoint.
	checkpointFileMiB = 64

	// savesBefore is how many checkpoints are saved before the stop: files that two saves
	// found unchanged need not be read by a stop.
	savesBefore = 3

	// changedMiB is how much of its checkpoint the program changes when it is stopped.
	changedMiB = 10

	// interrupted is the exit code of a program that was stopped and wants to resume.
	interrupted = 75
)

// resumedFlag is the file in which a program reports that it continues.
type resumedFlag struct {
	Resumed string `help:"File for the time at which it continued."`
}

// resumed is that report.
type resumed struct {
	At    time.Time
	Bytes int64 // of the checkpoint
}

// write writes the report in one step, so that no reader finds a part of it.
func (f resumedFlag) write(r resumed) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(f.Resumed+".new", text, 0o600), os.Rename(f.Resumed+".new", f.Resumed))
}

// programCommand is the program of a kind whose checkpoint is large: a folder of hard links
// to its files. It makes checkpoints until it is stopped, changes a part of one file then, and
// ends when it is started with a checkpoint.
type programCommand struct {
	resumedFlag
	MiB int `name:"mib" help:"Size of the checkpoint."`
}

// Run ends with the exit code of the contract in docs/jobs.md.
func (c *programCommand) Run(ctx context.Context) error {
	if restored := os.Getenv("SPOTWORKER_RESTORE"); restored != "" {
		r := resumed{At: time.Now()}
		for i := range c.files() {
			info, err := os.Stat(fileOf(restored, i))
			if err != nil {
				return err
			}
			r.Bytes += info.Size()
		}
		return c.write(r)
	}
	work := filepath.Join(os.Getenv("TMPDIR"), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	for i := range c.files() {
		if err := writeRandom(fileOf(work, i), 0, checkpointFileMiB<<20, byte(i+1)); err != nil {
			return err
		}
	}
	for step := 0; ctx.Err() == nil; step++ {
		if err := c.putCheckpoint(work, step); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	if err := changeFile(work); err != nil {
		return err
	}
	if err := c.putCheckpoint(work, -1); err != nil {
		return err
	}
	os.Exit(interrupted)
	return nil
}

// files is the number of files in a checkpoint.
func (c *programCommand) files() int { return c.MiB / checkpointFileMiB }

// fileOf returns the name of one of the program's files.
func fileOf(folder string, number int) string { return filepath.Join(folder, strconv.Itoa(number)) }

// changeFile replaces the first file by a copy with a part changed. No checkpoint changes, since
// they have links to the file before.
func changeFile(work string) error {
	next := filepath.Join(work, "next")
	if err := writeRandom(next, 0, checkpointFileMiB<<20, 1); err != nil {
		return err
	}
	if err := writeRandom(next, checkpointFileMiB<<18, changedMiB<<20, 0); err != nil {
		return err
	}
	return os.Rename(next, fileOf(work, 0))
}

// putCheckpoint puts a folder of hard links to all files in place, once the worker has taken
// the checkpoint before. A file with the step makes each checkpoint another one.
func (c *programCommand) putCheckpoint(work string, step int) error {
	checkpoint := os.Getenv("SPOTWORKER_CHECKPOINT")
	if err := within("the checkpoint before was not taken", func() (bool, error) {
		_, err := os.Lstat(checkpoint)
		return errors.Is(err, os.ErrNotExist), nil
	}); err != nil {
		return err
	}
	next := checkpoint + ".new"
	if err := os.Mkdir(next, 0o700); err != nil {
		return err
	}
	for i := range c.files() {
		if err := os.Link(fileOf(work, i), fileOf(next, i)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(next, "step"), []byte(strconv.Itoa(step)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, checkpoint)
}

// writeRandom writes the random bytes of a seed into a file.
func writeRandom(name string, at, size int64, seed byte) (err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(io.NewOffsetWriter(file, at), seeded(size, seed))
	return err
}

const (
	// rewrittenMiB is how much of its memory the frozen program rewrites all the time, in pages
	// all over it.
	rewrittenMiB = 50
	pageBytes    = 4 << 10

	// memoryTicks are how many steps rewrite all of these pages, and memoryTick is the time of one.
	memoryTicks = 20
	memoryTick  = 20 * time.Millisecond

	// standstill is a pause between two steps that is a freeze. A busy machine makes shorter ones.
	standstill = 300 * time.Millisecond
)

// memoryCommand is a program that saves nothing and has much memory.
type memoryCommand struct {
	resumedFlag
	MiB int `name:"mib" help:"Size of the memory."`
}

// Run rewrites pages, and reports whenever it stood still.
func (c *memoryCommand) Run(ctx context.Context) error {
	memory := make([]byte, c.MiB<<20)
	if _, err := io.ReadFull(seeded(int64(len(memory)), 1), memory); err != nil {
		return err
	}
	pages := rewrittenMiB << 20 / pageBytes
	distance := len(memory) / pages
	last := time.Now()
	for step := 0; ctx.Err() == nil; step++ {
		for page := step % memoryTicks; page < pages; page += memoryTicks {
			memory[page*distance]++
		}
		time.Sleep(memoryTick)
		now := time.Now().Round(0) // by the wall clock, which another machine has too
		if now.Sub(last.Round(0)) > standstill {
			if err := c.write(resumed{At: now, Bytes: int64(len(memory))}); err != nil {
				return err
			}
		}
		last = now
	}
	return nil
}

// handoverFigures are the columns of both tables of hand-overs.
var handoverFigures = []figure{{"Notice to released, s", "%.2f", true}, {"Released to running elsewhere, s", "%.2f", true}}

// measureHandovers prints the table of hand-overs of a program that saves its state.
func (b *bench) measureHandovers(ctx context.Context) error {
	t := &table{figures: handoverFigures}
	where := fmt.Sprintf("%d MiB in files of %d, %d changed in one of them", b.CheckpointMiB, checkpointFileMiB, changedMiB)
	if err := b.compare(ctx, t, where, b.workers(func(ctx context.Context, binary string) ([]float64, error) {
		return b.measureHandover(ctx, binary, "program", "")
	})...); err != nil {
		return err
	}
	b.print(t, "A hand-over of a large checkpoint", "A program that changes a part of its checkpoint when SIGTERM comes. Both workers, "+
		"their programs and the storage at 0 ms share all cores. The other worker is idle until then.")
	return nil
}

// measureFrozen prints the table of hand-overs of a program that CRIU freezes.
func (b *bench) measureFrozen(ctx context.Context) error {
	tools := filepath.Join(b.root, ".tools", "criu", "bin") // of make integration-tools
	if err := os.Setenv("PATH", os.Getenv("PATH")+string(os.PathListSeparator)+tools); err != nil {
		return err
	}
	const title, about = "A hand-over of a frozen program", "As before, with its memory in place of a checkpoint."
	if path, _ := exec.LookPath("criu"); path == "" {
		b.say("## %s\n\nNot measured: there is no criu in PATH (make integration-tools installs one).\n", title)
		return nil
	}
	t := &table{figures: handoverFigures}
	where := fmt.Sprintf("%d MiB, %d of them changed in pages", b.CheckpointMiB, rewrittenMiB)
	if err := b.compare(ctx, t, where, b.workers(func(ctx context.Context, binary string) ([]float64, error) {
		return b.measureHandover(ctx, binary, "memory", "criu")
	})...); err != nil {
		return err
	}
	b.print(t, title, about)
	return nil
}

// measureHandover lets one worker run a program and save checkpoints, starts another one, and stops
// the first. program is a subcommand of this one, and snapshot what makes its checkpoints; empty for itself.
func (b *bench) measureHandover(ctx context.Context, binary, program, snapshot string) (figures []float64, err error) {
	b = b.onAllCores() // a VM has two at least
	s, err := b.startStorage(ctx, 0, 1, "large")
	if err != nil {
		return nil, err
	}
	defer s.kill()
	folder, err := os.MkdirTemp(b.folder, "handover-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	kinds, report := filepath.Join(folder, "kinds.json"), resumedFlag{filepath.Join(folder, "resumed")}
	if err := b.writeKind(kinds, report, program, snapshot); err != nil {
		return nil, err
	}
	start := func(name string) (*process, error) {
		return b.startWorker(ctx, s, binary, "--concurrency", "1", "--checkpoint-interval", "1s", "--kinds-file", kinds,
			"--scratch", filepath.Join(folder, name), "--instance", name, "--log-format", "json")
	}
	first, err := start("first")
	if err != nil {
		return nil, err
	}
	defer first.kill()
	if err := s.await(storage.OpPutBlockList, savesBefore); err != nil {
		return nil, err
	}
	second, err := start("second")
	if err != nil {
		return nil, err
	}
	defer second.kill()
	if _, err := second.awaitLogged("worker starts"); err != nil {
		return nil, err
	}
	notice := time.Now()
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	released, err := first.awaitLogged("job released") // the drain ends later: it removes the job's folder
	if err != nil {
		return nil, err
	}
	continued, err := report.await(int64(b.CheckpointMiB)<<20, released.Time)
	return []float64{released.Time.Sub(notice).Seconds(), continued.Sub(released.Time).Seconds()}, err
}

// writeKind writes the settings of the program as the kind large.
func (b *bench) writeKind(file string, report resumedFlag, program, snapshot string) error {
	settings := map[string]any{"command": []string{b.self, program, "--mib", strconv.Itoa(b.CheckpointMiB), "--resumed", report.Resumed}}
	if snapshot != "" {
		settings["snapshot"] = snapshot
	}
	text, err := json.Marshal(map[string]any{"kinds": map[string]any{"large": settings}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// await waits until the program has continued from a checkpoint of that size, after a time.
func (f resumedFlag) await(size int64, after time.Time) (time.Time, error) {
	var r resumed
	err := within("the program did not continue elsewhere", func() (bool, error) {
		text, err := os.ReadFile(f.Resumed)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		err = errors.Join(err, json.Unmarshal(text, &r))
		return err == nil && r.At.After(after), err
	})
	if err == nil && r.Bytes != size {
		err = fmt.Errorf("the checkpoint that was restored has %d bytes, not %d", r.Bytes, size)
	}
	return r.At, err
}
