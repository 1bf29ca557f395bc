//go:build integration

package wine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/integration/parts"
)

// Build builds commands of this module for Windows, such as ./cmd/worker, into a
// folder of the test's own and returns the folder.
func Build(t testing.TB, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	return dir
}

// BuildTest builds the tests of one package for Windows and returns the program.
func BuildTest(t testing.TB, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg)+".test.exe")
	run(t, "test", "-c", "-o", program, pkg)
	return program
}

// run runs the go command for Windows, in the root of the module.
func run(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // packages that a test names
	cmd.Dir = parts.Repository(t)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v for Windows: %v\n%s", args, err, said)
	}
}
