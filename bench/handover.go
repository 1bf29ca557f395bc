package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/bench/probe"
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

	// handoverPatience bounds each step of a hand-over.
	handoverPatience = 2 * time.Minute

	// interrupted is the exit code of a program that was stopped and wants to resume.
	interrupted = 75
)

// programCommand is the program of a kind whose checkpoint is large: a folder of hard links
// to its files. It makes checkpoints until it is stopped, changes a part of one file then, and
// ends when it is started with a checkpoint.
type programCommand struct {
	MiB     int    `name:"mib" help:"Size of the checkpoint."`
	Resumed string `help:"File for the time at which it was started with a checkpoint."`
}

// resumed is the report of the program when it continues.
type resumed struct {
	At     time.Time
	Bytes  int64     // of the checkpoint
	Frozen []float64 // how long it stood still each time, in seconds
}

// Run ends with the exit code of the contract in docs/jobs.md.
func (c *programCommand) Run(ctx context.Context) error {
	if restored := os.Getenv("SPOTWORKER_RESTORE"); restored != "" {
		at := time.Now()
		size, err := c.folderSize(restored)
		if err != nil {
			return err
		}
		return writeResumed(c.Resumed, resumed{At: at, Bytes: size})
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

// checkCheckpoint returns an error for a size of a checkpoint, in MiB, that is not possible.
func checkCheckpoint(size int) error {
	const most = 16 << 10
	if size < checkpointFileMiB || size > most || size%checkpointFileMiB != 0 {
		return fmt.Errorf("--checkpoint-mib must be a multiple of %d, up to %d", checkpointFileMiB, most)
	}
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

// folderSize returns how many bytes the program's files in a folder have.
func (c *programCommand) folderSize(folder string) (size int64, err error) {
	for i := range c.files() {
		info, err := os.Stat(fileOf(folder, i))
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// writeResumed writes the file in one step, so that no reader finds a part of it.
func writeResumed(name string, r resumed) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
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

// handover is how long a program with a large checkpoint takes to another worker.
type handover struct {
	release time.Duration // from the notice until the job is released, with all changes saved
	resume  time.Duration // from there until the program runs on another worker, with its checkpoint
	frozen  []float64     // how long the program stood still for each snapshot, in seconds
}

// largeKind is a kind of jobs with a large state.
type largeKind struct {
	program string // subcommand of this program
	frozen  bool   // CRIU makes the checkpoints
}

// measureHandovers prints the table of hand-overs.
func (b *bench) measureHandovers(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		b.say("## A hand-over of a large checkpoint\n\nNot measured: a worker is asked to end by a signal, which Windows does not have.\n")
		return nil
	}
	var release, resume values
	for round := range b.Rounds {
		m, err := b.measureHandover(ctx, largeKind{program: "program"})
		if err != nil {
			return err
		}
		b.report("hand-over of %d MiB, round %d: released after %s, running elsewhere %s later", b.CheckpointMiB, round+1,
			m.release.Round(time.Millisecond), m.resume.Round(time.Millisecond))
		release, resume = append(release, m.release.Seconds()), append(resume, m.resume.Seconds())
	}
	var table grid
	table.add("Checkpoint", "Notice to released, s", "Released to running elsewhere, s")
	what := fmt.Sprintf("%d MiB in files of %d, %d changed in one of them", b.CheckpointMiB, checkpointFileMiB, changedMiB)
	table.add(what, release.show("%.2f"), resume.show("%.2f"))
	b.say("## A hand-over of a large checkpoint\n\nA program that changes a part of its checkpoint when SIGTERM comes, both workers and "+
		"their programs on one core, storage at 0 ms on the other. "+
		"The other worker is idle until then.\n\n%s", &table)
	return nil
}

// measureHandover lets one worker run the program of a kind and save checkpoints, starts another
// one, and stops the first.
func (b *bench) measureHandover(ctx context.Context, k largeKind) (m handover, err error) {
	s, err := b.startStorage(ctx, 0, 1, "--kind", "large")
	if err != nil {
		return m, err
	}
	defer s.kill()
	f, err := b.newHandoverFolder(k)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.path)) }()
	first, err := b.startLarge(ctx, s, f, "first")
	if err != nil {
		return m, err
	}
	defer first.kill()
	if err := within("no checkpoints were saved", func() (bool, error) {
		c, err := s.counts()
		return c.Calls[storage.OpPutBlockList] >= savesBefore, err
	}); err != nil {
		return m, err
	}
	second, err := b.startLarge(ctx, s, f, "second")
	if err != nil {
		return m, err
	}
	defer second.kill()
	var idle probe.Sample
	if err := second.ask(&idle); err != nil { // so that it runs when the notice comes
		return m, err
	}
	notice := time.Now()
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return m, err
	}
	released, err := first.awaitRelease()
	if err != nil {
		return m, err
	}
	m.release = released.Sub(notice)
	r, err := f.awaitResumed(int64(b.CheckpointMiB)<<20, released)
	m.resume = r.At.Sub(released)
	if n := len(r.Frozen); n > 0 {
		m.frozen = r.Frozen[:n-1] // the last time is the hand-over
	}
	return m, err
}

// handoverFolder has the scratch folders of two workers and the settings of both.
type handoverFolder struct{ path string }

func (f handoverFolder) kinds() string   { return filepath.Join(f.path, "kinds.json") }
func (f handoverFolder) resumed() string { return filepath.Join(f.path, "resumed") }

func (b *bench) newHandoverFolder(k largeKind) (f handoverFolder, err error) {
	if f.path, err = os.MkdirTemp(b.folder, "handover-"); err != nil {
		return f, err
	}
	settings := map[string]any{"command": []string{b.self, k.program, "--mib", strconv.Itoa(b.CheckpointMiB), "--resumed", f.resumed()}}
	if k.frozen {
		settings["snapshot"] = "criu"
	}
	text, err := json.Marshal(map[string]any{"kinds": map[string]any{"large": settings}})
	if err != nil {
		return f, err
	}
	return f, os.WriteFile(f.kinds(), text, 0o600)
}

// startLarge starts a worker that runs the program.
func (b *bench) startLarge(ctx context.Context, s *storageProcess, f handoverFolder, name string) (*process, error) {
	return b.startProcess(ctx, sideCore, []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}, b.worker,
		"--concurrency", "1", "--checkpoint-interval", "1s", "--kinds-file", f.kinds(),
		"--scratch", filepath.Join(f.path, name), "--instance", name, "--metadata-endpoint", "none", "--listen", "none", "--log-format", "json")
}

// awaitRelease waits until the worker has released its job, and returns when that was. The drain
// ends later: the worker also removes the job's folder.
func (p *process) awaitRelease() (at time.Time, err error) {
	err = within("the job was not released", func() (bool, error) {
		line, err := p.findLogged("job released")
		if line == nil || err != nil {
			return false, err
		}
		at = line.Time
		return true, nil
	})
	return at, err
}

// awaitResumed waits until the program has continued from a checkpoint of that size, after a time.
func (f handoverFolder) awaitResumed(size int64, after time.Time) (r resumed, err error) {
	err = within("the program did not continue elsewhere", func() (bool, error) {
		text, err := os.ReadFile(f.resumed())
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		err = errors.Join(err, json.Unmarshal(text, &r))
		return err == nil && r.At.After(after), err
	})
	if err == nil && r.Bytes != size {
		err = fmt.Errorf("the checkpoint that was restored has %d bytes, not %d", r.Bytes, size)
	}
	return r, err
}

// within asks until done reports true.
func within(otherwise string, done func() (bool, error)) error {
	for late := time.Now().Add(handoverPatience); ; time.Sleep(10 * time.Millisecond) {
		switch ok, err := done(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(late):
			return fmt.Errorf("%s within %s", otherwise, handoverPatience)
		}
	}
}
