package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/process/scratch"
	"github.com/spotworker/spotworker/job"
)

// smallDisk is the size of the file system in bytes.
const smallDisk = 1 << 20

// TestShortOfDisk: what a full disk keeps from being begun is not the job's
// failure, and leaves nothing behind; a job that is too large for the disk has
// failed, and so has a program that fills it. It needs a file system of its own.
func TestShortOfDisk(t *testing.T) {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	inChild(t, attributes, func(t *testing.T) {
		disk := t.TempDir()
		mount(t, "none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		mount(t, "small", disk, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", smallDisk))
		b := shortOf(t, disk)
		others := filepath.Join(disk, "others")
		if err := os.WriteFile(others, make([]byte, smallDisk/4*3), 0o600); err != nil {
			t.Fatal(err)
		}
		b.demandInterruption("echo", smallDisk/3, "no space left on device")
		b.demandNothingLeft()
		if err := os.Remove(others); err != nil {
			t.Fatal(err)
		}
		b.demandResult("echo", smallDisk/3)
		b.demandFailure("echo", 2*smallDisk, "the job does not fit")
		b.demandNothingLeft()
		b.demandFailure("puts too much", 10, "no space left on device")
		b.demandResult("echo", smallDisk/3)
		if err := errors.Join(b.scratch.Close(), unix.Unmount(disk, 0)); err != nil {
			t.Error(err)
		}
	})
}

// TestShortOfDescriptors: a worker that can open no more files counts that against
// no job, and does the same job once it can. What it could not remove before
// goes with the next job's folder.
func TestShortOfDescriptors(t *testing.T) {
	inChild(t, nil, func(t *testing.T) {
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
	inChild(t, nil, func(t *testing.T) {
		k := newKeeper(t)
		k.save(t, "small")
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		limitFiles(t, lowestFree(t), before.Max)
		p, err := k.collect(t.Context())
		limitFiles(t, before.Cur, before.Max)
		if p != nil || !errors.Is(err, unix.EMFILE) || !job.IsInterrupted(asInterruption(err)) {
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
	inChild(t, attributes, func(t *testing.T) {
		b := shortOf(t, t.TempDir())
		k := b.kind("exit", "CODE=0")
		k.CPUTime = time.Hour
		if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 600, Max: 600}); err != nil {
			t.Fatal(err)
		}
		b.demandNotCounted(k, "the limits of kind test cannot be set")
		k.CPUTime = time.Minute
		if _, err := b.brief(k).Run(t.Context(), job.New(job.Spec{ID: "a"}, nil)); err != nil {
			t.Errorf("Run with limits that can be set = %v, want nil", err)
		}
		if err := b.scratch.Close(); err != nil {
			t.Error(err)
		}
	})
}

// childVariable marks the process that plays a test, and exitNotAllowed is its
// exit code where it lacks a right.
const (
	childVariable  = "SPOTWORKER_TEST_CHILD"
	exitNotAllowed = 77
)

// inChild runs a test in a process of its own, whose limits and mounts concern
// no other test.
func inChild(t *testing.T, attributes *syscall.SysProcAttr, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		test(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.SysProcAttr = attributes
	output, err := cmd.CombinedOutput()
	switch notAllowed := errors.Is(err, unix.EPERM) || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitNotAllowed; {
	case notAllowed:
		t.Skipf("this machine allows no mount namespace of one's own: %v", err)
	case err != nil:
		t.Errorf("%v:\n%s", err, output)
	}
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	switch err := unix.Mount(source, target, kind, flags, data); {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		os.Exit(exitNotAllowed)
	case err != nil:
		t.Fatalf("mount %s: %v", target, err)
	}
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
	defer j.Close()
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

// demandNothingLeft demands that the folders of jobs that have ended are gone.
func (b *shortBench) demandNothingLeft() {
	b.t.Helper()
	entries, err := os.ReadDir(b.home())
	if err != nil || len(entries) != 1 {
		b.t.Errorf("the scratch folder has %v, %v, want its lock alone", entries, err)
	}
}
