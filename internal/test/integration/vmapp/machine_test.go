//go:build integration && linux

package vmapp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workerLog is where the unit of a VM's only worker writes.
const workerLog = "/var/log/spotworker/worker.log"

// patience bounds every wait: a busy machine is slow, not stuck.
const patience = 3 * time.Minute

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !within(patience, done) {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

// within waits until done, and returns false if that takes too long.
func within(limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// command runs a command that must succeed.
func command(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// property asks systemd about a unit.
func property(t *testing.T, unit, name string) string {
	t.Helper()
	return command(t, "systemctl", "show", "--property", name, "--value", unit)
}

func number(t *testing.T, unit, name string) int {
	t.Helper()
	n, err := strconv.Atoi(property(t, unit, name))
	if err != nil {
		t.Fatalf("%s of %s: %v", name, unit, err)
	}
	return n
}

// logged returns what workers wrote to a log; none yet is nothing.
func logged(path string) string {
	data, _ := os.ReadFile(path) // before the first start there is none
	return string(data)
}

// awaitLogged waits for a line with all these words, after the first n bytes.
func awaitLogged(t *testing.T, path string, n int, words ...string) string {
	t.Helper()
	var found string
	come := within(patience, func() bool {
		for line := range strings.Lines(logged(path)[n:]) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				found = line
				return true
			}
		}
		return false
	})
	if !come {
		t.Fatalf("a line of %s with %s: not within %s. Its last lines:\n%s", path, strings.Join(words, " and "), patience,
			lastLines(logged(path)[n:], 5))
	}
	return found
}

// lastLines returns the last lines of a log that are not of level DEBUG, shortened, without
// their times.
func lastLines(log string, most int) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"level":"DEBUG"`) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), ",") // the time
			lines = append(lines, line[:min(len(line), 230)])
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// passing are folders that change for other reasons than the worker.
var passing = []string{
	"/dev", "/proc", "/sys", "/tmp", shared, "/var/lib/waagent", "/var/log/journal", "/var/lib/systemd", "/run/systemd", "/run/log",
	"/run/user", "/run/dbus", "/run/credentials", "/run/udev", "/run/agetty.reload",
	"/var/backups", "/var/cache/apt", "/var/lib/apt", "/var/lib/logrotate", // of Debian's daily work, which may have begun at the boot
}

// inventory lists all lasting files of the machine.
func inventory(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("/", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it has just gone
		case err != nil:
			return err
		case slices.Contains(passing, path):
			return fs.SkipDir
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// describe tells what a file is, and when it was made.
func describe(path string) string {
	about, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, %d bytes, of %s; now is %s", about.Mode(), about.Size(), about.ModTime().Format(time.RFC3339),
		time.Now().Format(time.RFC3339))
}

// byUserTools are files that useradd and the like leave at their first run.
var byUserTools = []string{
	"/etc/.pwd.lock", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
}

// isOfWorker reports whether a file comes from the package, the worker or a job: it names
// spotworker, or belongs to a user that the machine does not have. Other new files are the
// system's.
func isOfWorker(t *testing.T, path string) bool {
	t.Helper()
	about, err := os.Lstat(path)
	if err != nil {
		return false // it has just gone
	}
	owner := strconv.Itoa(int(about.Sys().(*syscall.Stat_t).Uid))
	if _, err := user.LookupId(owner); err != nil || strings.Contains(path, "spotworker") {
		return true
	}
	if about.Mode()&fs.ModeSymlink != 0 {
		target, _ := os.Readlink(path) // gone, if there is an error
		return strings.Contains(target, "spotworker")
	}
	if !about.Mode().IsRegular() || about.Size() > 1<<20 {
		return false
	}
	text, _ := os.ReadFile(path) // gone, if there is an error
	return bytes.Contains(text, []byte("spotworker"))
}

// wantNothingLeft demands that the removal left nothing of the worker.
func wantNothingLeft(t *testing.T, before []string) {
	t.Helper()
	was := map[string]bool{}
	for _, path := range before {
		was[path] = true
	}
	for _, path := range inventory(t) {
		switch {
		case was[path], slices.Contains(byUserTools, path):
		case isOfWorker(t, path):
			t.Errorf("%s is left after the removal: %s", path, describe(path))
		default:
			t.Logf("%s is new, and not of the worker: %s", path, describe(path))
		}
	}
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"} {
		if strings.Contains(read(t, path), "spotworker") {
			t.Errorf("%s still names spotworker after the removal", path)
		}
	}
	units := command(t, "systemctl", "list-units", "--all", "--plain", "--no-legend", "spotworker.service", "spotworker@*")
	for unit := range strings.Lines(units) {
		// systemd may list a unit without a file for longer, as here, where it has no news of control groups.
		if !slices.Equal(strings.Fields(unit)[1:4], []string{"not-found", "inactive", "dead"}) {
			t.Errorf("unit after the removal: %s, want none", unit)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		program, _ := os.Readlink(process) // of a process that has ended, if there is an error
		if strings.HasPrefix(program, "/opt/") {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(process), "cmdline"))
			group, _ := os.ReadFile(filepath.Join(filepath.Dir(process), "cgroup"))
			t.Errorf("process after the removal: %s %q in %s, want none", process, command, bytes.ReplaceAll(group, []byte("\n"), []byte(" ")))
		}
	}
}
