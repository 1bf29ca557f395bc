package program

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// hold opens a file as a virus scanner may: no one else can read it, and it can be renamed.
func hold(t *testing.T, name string) (release func()) {
	t.Helper()
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := windows.CreateFile(path, windows.GENERIC_READ, windows.FILE_SHARE_DELETE, nil, windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = windows.CloseHandle(handle) }
}

// TestUnreadableCheckpoint: a checkpoint that another process has open is no failure of the job. It
// is read at a later look, and the last look waits for it.
func TestUnreadableCheckpoint(t *testing.T) {
	for name, size := range map[string]int{"small": 10, "large": smallState + 1} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("x", size)
			k := newKeeper(t)
			k.save(t, text)
			release := hold(t, k.from)
			for range 3 {
				p, err := k.collect(t.Context())
				if err != nil {
					t.Fatalf("collect of a held checkpoint = %v", err)
				}
				if p != nil && p.Stream == nil {
					t.Fatalf("collect of a held checkpoint = %+v, want a later look", p)
				}
				if p != nil { // its content is read when it is saved
					time.AfterFunc(500*time.Millisecond, release)
					if got := stateOf(t, p); got != text {
						t.Errorf("state has %d bytes, want %d", len(got), size)
					}
					return
				}
			}
			release()
			p, err := k.collect(t.Context())
			if err != nil || p == nil || stateOf(t, p) != text {
				t.Errorf("collect after the release = %+v, %v", p, err)
			}
		})
	}
}

// TestUnreadableAtTheEnd: the last look waits for a checkpoint, for a short time after a stop.
func TestUnreadableAtTheEnd(t *testing.T) {
	k := newKeeper(t)
	k.save(t, "state")
	k.ended, k.stop = true, t.Context()
	time.AfterFunc(3*time.Second, hold(t, k.from))
	if p, err := k.collect(t.Context()); err != nil || p == nil || stateOf(t, p) != "state" {
		t.Errorf("the last look at a checkpoint that is held for 3s = %+v, %v", p, err)
	}

	k = newKeeper(t)
	k.save(t, "state")
	defer hold(t, k.from)()
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	k.ended, k.stop = true, stopped
	begun := time.Now()
	p, err := k.collect(t.Context())
	if p != nil || !job.IsUnavailable(err) {
		t.Errorf("the last look at a held checkpoint after a stop = %+v, %v, want an interruption", p, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the last look after a stop took %s", took)
	}
}

// TestUnreadableForTooLong: a program that keeps its checkpoint open fails. After the end
// of the program the machine holds it.
func TestUnreadableForTooLong(t *testing.T) {
	k := newKeeper(t)
	k.save(t, "state")
	defer hold(t, k.from)()
	if p, err := k.collect(t.Context()); p != nil || err != nil {
		t.Errorf("collect of a held checkpoint = %+v, %v, want a later look", p, err)
	}
	k.heldLooks = heldLooks
	if p, err := k.collect(t.Context()); p != nil || err == nil || job.IsUnavailable(err) {
		t.Errorf("collect of a checkpoint that was held for too long = %+v, %v, want a failure", p, err)
	}
	if err := heldElsewhere(windows.ERROR_SHARING_VIOLATION); !job.IsUnavailable(err) {
		t.Errorf("a held file after the end of the program = %v, want an interruption", err)
	}
	if err := heldElsewhere(windows.ERROR_ACCESS_DENIED); job.IsUnavailable(err) {
		t.Errorf("a file without rights after the end of the program = %v, want a failure", err)
	}
}

// TestUnreadableResult: the result of a finished job waits for another process that has it open,
// and is not lost to it.
func TestUnreadableResult(t *testing.T) {
	name := filepath.Join(t.TempDir(), "result")
	if err := os.WriteFile(name, []byte("42"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &programRun{folder: &folder{Folder: &scratch.Folder{}, result: name}}
	time.AfterFunc(3*time.Second, hold(t, name))
	if got, err := r.result(t.Context()); err != nil || string(got) != "42" {
		t.Errorf("result that was held for 3s = %q, %v", got, err)
	}
	defer hold(t, name)()
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := r.result(stopped); !job.IsUnavailable(err) {
		t.Errorf("result that stays held = %q, %v, want an interruption", got, err)
	}
}

// TestUnreadableFileOfAFolder: a file of a folder that another process has open is waited
// for, and is not mistaken for a file that was written to.
func TestUnreadableFileOfAFolder(t *testing.T) {
	k := newKeeper(t)
	if err := os.Mkdir(k.from, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(k.from, "file")
	if err := os.WriteFile(name, []byte(strings.Repeat("x", 2*smallState)), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // older than the steps of the clock
	p, err := k.collect(t.Context())
	if err != nil || p == nil || p.Stream == nil {
		t.Fatalf("collect of a folder = %+v, %v", p, err)
	}
	time.AfterFunc(time.Second, hold(t, filepath.Join(k.last.name, "file")))
	if got := len(stateOf(t, p)); got < 2*smallState || k.last.isTorn() {
		t.Errorf("archive has %d bytes, torn %t", got, k.last.isTorn())
	}
}
