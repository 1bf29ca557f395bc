//go:build unix

package program

import (
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// hostileNames are the names in a job's folder.
var hostileNames = []string{
	"stop", "stop.new", "progress", "result", "checkpoint", "payload", "restore", "kept", "output", "sent", "work", "tmp",
}

// hostileTypes are the types of files that a program can put there.
var hostileTypes = map[string]func(name string) error{
	"pipe":   func(name string) error { return syscall.Mkfifo(name, 0o600) },
	"device": func(name string) error { return exec.Command("mknod", name, "c", "1", "5").Run() }, // /dev/zero, if it may
	"socket": func(name string) error {
		if err := os.Chdir(filepath.Dir(name)); err != nil { // the path of a socket must be short
			return err
		}
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(name)})
		if err == nil {
			listener.SetUnlinkOnClose(false)
		}
		return err
	},
	"link to a pipe": func(name string) error {
		return errors.Join(syscall.Mkfifo(name+"-pipe", 0o600), os.Symlink(name+"-pipe", name))
	},
	"link to nothing": func(name string) error { return os.Symlink("/nonexistent/"+filepath.Base(name), name) },
	"empty folder":    func(name string) error { return os.Mkdir(name, 0o700) },
	"folder of pipes": func(name string) error {
		return errors.Join(os.Mkdir(name, 0o700), syscall.Mkfifo(filepath.Join(name, "pipe"), 0o600))
	},
	"unreadable file":   func(name string) error { return os.WriteFile(name, []byte("text\n"), 0) },
	"unreadable folder": func(name string) error { return os.Mkdir(name, 0) },
	"huge file": func(name string) error {
		return errors.Join(os.WriteFile(name, []byte("text\n"), 0o600), os.Truncate(name, 1<<40))
	},
}

// replacesName puts something in the place of a file of the job's folder, of all of them
// without a name. It then ignores SIGTERM.
func replacesName() int {
	signal.Ignore(syscall.SIGTERM)
	dir := filepath.Dir(os.Getenv(envPayload))
	names := hostileNames
	if name := os.Getenv("NAME"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		place := filepath.Join(dir, name)
		if err := os.Rename(place, filepath.Join(dir, "own-"+name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return worked(err)
		}
		if err := hostileTypes[os.Getenv("TYPE")](place); err != nil && os.Getenv("TYPE") != "device" {
			return worked(err)
		}
	}
	_ = os.WriteFile(os.Getenv("READY"), nil, 0o600)
	sleep()
	return 97
}

// hostileRig is a rig with a folder in which a program makes a file once it is ready.
type hostileRig struct {
	*rig
	ready string
}

// hostileJob is a job of a program that replaces a file.
type hostileJob struct {
	*work
	name string // of the file, empty for all of them
}

// eachHostile begins a job for each name and for all names at once, and calls check with
// them, once for each type. A quick run takes three types.
func eachHostile(t *testing.T, begin func(b hostileRig, k Kind) *work, check func(t *testing.T, b hostileRig, all []hostileJob)) {
	for _, kind := range proof.Some(t, 3, slices.Sorted(maps.Keys(hostileTypes))) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := hostileRig{setup(t), writableForAll(t)}
			var all []hostileJob
			for _, name := range append([]string{""}, hostileNames...) {
				k := b.kind("replaces a name", "TYPE="+kind, "NAME="+name)
				k.Outputs = &Outputs{}
				all = append(all, hostileJob{begin(b, k), name})
			}
			check(t, b, all)
		})
	}
}

// TestHostileNamesAndStop: a program that puts anything in the place of a file of its
// folder is killed at its deadline.
func TestHostileNamesAndStop(t *testing.T) {
	eachHostile(t, func(b hostileRig, k Kind) *work {
		k.Environment["READY"] = filepath.Join(b.ready, "of "+k.Environment["NAME"])
		j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, nil)
		job.ControlOf(j).OnOutputs(&stored{})
		return b.beginJob(k, j)
	}, func(t *testing.T, b hostileRig, all []hostileJob) {
		b.until("the programs have replaced their files", func() bool {
			ready, _ := filepath.Glob(filepath.Join(b.ready, "*"))
			ended := 0 // the replacement was a fault
			for _, w := range all {
				select {
				case <-w.done:
					ended++
				default:
				}
			}
			return len(ready)+ended >= len(all)
		})
		for _, w := range all {
			w.stop(job.Evicted, time.Second)
		}
		for _, w := range all {
			if w.wait(t); w.err == nil {
				t.Errorf("%s: Run = %q, nil, want an interruption or a failure: the program never ended on its own", w.name, w.result)
			}
		}
	})
}
