package need

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Part is a part of a machine that CI's machine cannot have.
type Part string

// Parts that CI's machine cannot have.
const (
	Controllers Part = "cgroup v2 controllers"
	CtrlBreak   Part = "Ctrl-Break on Windows"
	Containers  Part = "containers of podman"
	Snapshots   Part = "snapshots of programs"
)

// absentInCI says why CI's machine cannot have a part.
var absentInCI = map[Part]string{
	Controllers: "its kernel has the controllers in hierarchies of version 1",
	CtrlBreak:   "its Windows is Wine, which sends no Ctrl-Break",
	Containers:  "its kernel may refuse what podman sets up",
	Snapshots:   "its kernel may refuse user namespaces, and its programs may be on an overlay file system",
}

// CI reports whether a missing part fails a test. Programs for Windows run in CI too, under
// Wine, which has no tools.
func CI() bool { return os.Getenv("CI") == "true" && runtime.GOOS != "windows" }

// Missing skips the test because the machine lacks a part. With CI=true it fails the test.
func Missing(t testing.TB, part string) {
	t.Helper()
	if CI() {
		t.Fatalf("missing: %s. CI=true, so this is a failure", part)
	}
	t.Skipf("missing: %s. \"make integration-tools\" installs most of what tests need", part)
}

// Absent skips the test because the machine lacks a part that CI's machine cannot have.
func Absent(t testing.TB, part Part, detail string) {
	t.Helper()
	reason, known := absentInCI[part]
	if !known {
		t.Fatalf("package need gives no reason why CI's machine cannot have %s", part)
	}
	t.Skipf("missing: %s: %s. CI's machine cannot have it either: %s", part, detail, reason)
}

// Command returns the path of a command. A command that is not in PATH is missing.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" in PATH")
	}
	return path
}

// On skips the test on all operating systems except these. The reason names the feature that
// only these systems have.
func On(t testing.TB, reason string, systems ...string) {
	t.Helper()
	if !slices.Contains(systems, runtime.GOOS) {
		t.Skipf("only on %s: %s", strings.Join(systems, ", "), reason)
	}
}

// NotOn skips the test on one operating system. The reason names the feature that the system
// lacks.
func NotOn(t testing.TB, system, reason string) {
	t.Helper()
	if runtime.GOOS == system {
		t.Skipf("not on %s: %s", system, reason)
	}
}

// Flag skips the test unless a flag asks for it.
func Flag(t testing.TB, name string, given bool) {
	t.Helper()
	if !given {
		t.Skipf("runs only with -%s", name)
	}
}

// Caller skips the test unless another test runs it, in a process that it prepares.
func Caller(t testing.TB, test string, called bool) {
	t.Helper()
	if !called {
		t.Skipf("%s runs it", test)
	}
}
