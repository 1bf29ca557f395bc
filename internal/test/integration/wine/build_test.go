//go:build integration

package wine

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// Build builds commands of this module for Windows, such as ./cmd/worker, into a
// folder of the test's own and returns the folder.
func Build(t testing.TB, packages ...string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)...)
	return dir
}

// BuildTest builds the tests of one package for Windows and returns the program. In
// it [os.RemoveAll], with which the tests remove their folders, uses the calls of
// older Windows: Wine lacks the newer one, and has an error for it that Go does not
// know.
func BuildTest(t testing.TB, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg)+".test.exe")
	run(t, "test", "-c", "-overlay", oldRemoval(t), "-o", program, pkg)
	return program
}

// oldRemoval returns an overlay for the go command that takes the way of older
// Windows.
func oldRemoval(t testing.TB) string {
	t.Helper()
	const newer, older = "if TestDeleteatFallback {", "if true {"
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "internal", "syscall", "windows", "at_windows.go")
	code, err := os.ReadFile(source)
	if err != nil || bytes.Count(code, []byte(newer)) != 1 {
		t.Fatalf("%s is not as expected: %v", source, err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "at_windows.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	err = errors.Join(err, os.WriteFile(changed, bytes.Replace(code, []byte(newer), []byte(older), 1), 0o600),
		os.WriteFile(overlay, text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

// run runs the go command for Windows, in the root of the module.
func run(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = repository.Root(t)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v for Windows: %v\n%s", args, err, said)
	}
}
