package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/test/isolated"
	"github.com/spotworker/spotworker/job"
)

// smallDisk is the size of the file system in bytes.
const smallDisk = 1 << 20

// TestShortOfDisk: a job that a full disk prevents from starting has not failed, and
// leaves nothing behind; a job that is too large for the disk has failed, and so has a
// program that fills it. It needs a file system of its own.
func TestShortOfDisk(t *testing.T) {
	isolated.WithDisk(t, smallDisk, func(t *testing.T, disk string) {
		b := shortOf(t, disk)
		free := isolated.FillDisk(t, disk, smallDisk/4)
		b.demandInterruption("echo", smallDisk/3, "no space left on device")
		b.demandNothingLeft()
		free()
		b.demandResult("echo", smallDisk/3)
		b.demandFailure("echo", 2*smallDisk, "the job does not fit")
		b.demandNothingLeft()
		b.demandFailure("puts too much", 10, "no space left on device")
		prints := script("head -c 2097152 /dev/zero") // exits with 0, since the worker reads it to its end
		prints.ResultStdout = true
		j := job.New(job.Spec{ID: "a", Kind: "test"}, nil)
		_, err := b.brief(prints).Run(t.Context(), j)
		if err == nil || job.IsInterrupted(err) || !strings.Contains(err.Error(), "the job does not fit") {
			t.Errorf("a program that prints more than the disk holds: %v, want a failure", err)
		}
		job.ControlOf(j).Close()
		b.demandResult("echo", smallDisk/3)
		if err := b.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDiskFillsDuringARestore: a checkpoint, of one file or of many, and outputs that the
// job has sent before need more room than others have left. The job is interrupted by an
// error that names the disk, its program is not started with a part of them, nothing is
// left, and the job runs as soon as there is room.
func TestDiskFillsDuringARestore(t *testing.T) {
	isolated.WithDisk(t, smallDisk, func(t *testing.T, disk string) {
		b := shortOf(t, disk)
		large := strings.Repeat("x", smallDisk/3)
		dir := t.TempDir()
		for i := range 40 {
			appendTo(t, filepath.Join(dir, fmt.Sprintf("%02d", i)), large[:len(large)/40])
		}
		size := withResult(script(`cat "${SPOTWORKER_RESTORE:-/none}"/* 2>/dev/null | wc -c; cat "$SPOTWORKER_RESTORE" 2>/dev/null | wc -c; ` +
			`cat "$SPOTWORKER_OUTPUT"/* | wc -c`))
		size.Outputs = &Outputs{}
		folder := &job.Progress{State: []byte(archived(t, dir)), Version: stateFolder}
		for name, row := range map[string]struct {
			saved   *job.Progress
			outputs string
			want    []string
		}{
			"a file":   {&job.Progress{State: []byte(large), Version: stateFile}, "", []string{"0", strconv.Itoa(len(large)), "0"}},
			"a folder": {folder, "", []string{strconv.Itoa(len(large) / 40 * 40), "0", "0"}},
			"outputs":  {nil, large, []string{"0", "0", strconv.Itoa(len(large))}},
		} {
			run := func() ([]byte, error) {
				j := job.New(job.Spec{ID: "a", Kind: "test"}, row.saved)
				sent := &stored{}
				if row.outputs != "" {
					sent.files = map[string]string{"result.bin": row.outputs}
				}
				job.ControlOf(j).OnOutputs(sent)
				defer job.ControlOf(j).Close()
				return b.brief(size).Run(context.Background(), j)
			}
			free := isolated.FillDisk(t, disk, smallDisk/6)
			_, err := run()
			if !job.IsUnavailable(err) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space in "+disk+" (") ||
				!strings.Contains(err.Error(), "not counted as a failure") {
				t.Errorf("%s on a disk that others fill: Run = %v, want an interruption that names %s and what is free in it", name, err, disk)
			}
			b.demandNothingLeft()
			free()
			if result, err := run(); err != nil || !slices.Equal(strings.Fields(string(result)), row.want) {
				t.Errorf("%s with room for it: Run = %q, %v, want that %v bytes are restored", name, result, err, row.want)
			}
			b.demandNothingLeft()
		}
		if err := b.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCopyThatFillsTheDisk: a copy of the program's own checkpoint files for which the disk has
// no room leaves nothing: the program needs the disk.
func TestCopyThatFillsTheDisk(t *testing.T) {
	isolated.WithDisk(t, smallDisk, func(t *testing.T, disk string) {
		b, k := shortOf(t, disk), ownFilesKind("", "")
		f, err := newFolder(b.scratch, &k)
		if err != nil {
			t.Fatal(err)
		}
		r := &programRun{folder: f}
		o, err := openOwnFiles(&k, r)
		if err != nil {
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(f.work, k.CheckpointFiles[0]), strings.Repeat("x", 2*smallDisk/3))
		o.begin(t.Context(), r)
		if c := <-o.copied; c.ok || !errors.Is(c.err, unix.ENOSPC) {
			t.Fatalf("copy = %+v, want that the disk is full", c)
		}
		if _, err := os.Lstat(o.to); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the copy for which there was no room: %v, want that nothing of it is left", err)
		}
	})
}

// TestShortOfDescriptors: a worker that can open no more files counts that against no
// job, and does the same job once it can. Files that it could not remove before go with
// the next job's folder.
func TestShortOfDescriptors(t *testing.T) {
	isolated.Run(t, nil, func(t *testing.T) {
		b := shortOf(t, t.TempDir())
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		for free := range uint64(4) { // to fail in the folder, at the start of the program, and between
			limitFiles(t, lowestFree(t)+free, before.Max)
			b.demandInterruption("echo", 10, "too many open files")
			limitFiles(t, before.Cur, before.Max)
		}
		b.demandResult("echo", 10)
		b.demandNothingLeft()
		if err := b.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTakenShortOfDescriptors: a small checkpoint that cannot be opened once it
// was taken is an error that is not counted, and no state.
func TestTakenShortOfDescriptors(t *testing.T) {
	isolated.Run(t, nil, func(t *testing.T) {
		k := newKeeper(t)
		k.save(t, "small")
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		limitFiles(t, lowestFree(t), before.Max)
		p, err := k.collect(t.Context())
		limitFiles(t, before.Cur, before.Max)
		if p != nil || !errors.Is(err, unix.EMFILE) || !resource.IsExhaustion(err) {
			t.Errorf("take = %+v, %v, want no state, and an error that is not counted", p, err)
		}
	})
}

// TestLimitsCannotBeSet: where the system allows a worker less than a kind's
// limits, its programs do not start, which is not counted against the jobs.
func TestLimitsCannotBeSet(t *testing.T) {
	attributes := &syscall.SysProcAttr{ // without the right to raise limits
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	isolated.Run(t, attributes, func(t *testing.T) {
		b := shortOf(t, t.TempDir())
		k := b.kind("exit", "CODE=0")
		k.Disk = 1 << 40
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		b.demandNotCounted(k, "the limits of kind test cannot be set")
		k.Disk = 1 << 20
		if _, err := b.brief(k).Run(t.Context(), job.New(job.Spec{ID: "a"}, nil)); err != nil {
			t.Errorf("Run with limits that can be set = %v, want nil", err)
		}
		if err := b.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
}

func limitFiles(t *testing.T, most, hard uint64) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: hard}); err != nil {
		t.Fatal(err)
	}
}

// lowestFree is the number that the next file to be opened gets.
func lowestFree(t *testing.T) uint64 {
	t.Helper()
	fd, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	return uint64(fd)
}

// archived is a folder as a state.
func archived(t *testing.T, dir string) string {
	t.Helper()
	index, err := archive.Scan(t.Context(), dir, roomy)
	if err != nil {
		t.Fatal(err)
	}
	data, err := readAll(index)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// shortBench runs jobs on a machine that is short of something.
type shortBench struct{ *rig }

func shortOf(t *testing.T, parent string) *shortBench {
	t.Helper()
	b := &rig{t: t, log: &logLines{}}
	var err error
	if b.scratch, err = scratch.Open(parent, nil, b.logger()); err != nil {
		t.Fatal(err)
	}
	return &shortBench{b}
}

// do runs a job with a payload of so many bytes.
func (b *shortBench) do(role string, payload int) ([]byte, error) {
	b.t.Helper()
	j := job.New(job.Spec{ID: "a", Kind: "test", Payload: make([]byte, payload)}, nil)
	defer job.ControlOf(j).Close()
	return b.brief(b.kind(role)).Run(context.Background(), j)
}

func (b *shortBench) demandResult(role string, payload int) {
	b.t.Helper()
	if result, err := b.do(role, payload); err != nil || len(result) != payload {
		b.t.Errorf("%s with %d bytes = %d bytes, %v, want its payload", role, payload, len(result), err)
	}
}

func (b *shortBench) demandInterruption(role string, payload int, what string) {
	b.t.Helper()
	if _, err := b.do(role, payload); !job.IsInterrupted(err) || !strings.Contains(err.Error(), what) {
		b.t.Errorf("%s with %d bytes = %v, want an interruption that says %q", role, payload, err, what)
	}
}

func (b *shortBench) demandFailure(role string, payload int, what string) {
	b.t.Helper()
	if _, err := b.do(role, payload); err == nil || job.IsInterrupted(err) || job.IsPermanent(err) || !strings.Contains(err.Error(), what) {
		b.t.Errorf("%s with %d bytes = %v, want a failure that says %q", role, payload, err, what)
	}
}
