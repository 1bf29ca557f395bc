package parts

import (
	"os"
	"os/exec"
	"testing"
)

// Missing skips the test where the machine lacks a part, and fails it where
// that must not be.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: get it with \"make integration-tools\"; CI=true, so this is a failure", what)
	}
	t.Skipf("%s: get it with \"make integration-tools\"", what)
}

// Command returns the path of a command, or ends the test as [Missing] does.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not in PATH")
	}
	return path
}
