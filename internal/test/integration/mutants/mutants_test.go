//go:build integration

package mutants

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

var all = flag.Bool("all", false, "try all mutations rather than the most important ones")

// TestMutantsAreNoticed breaks one rule at a time, and runs the tests that must fail.
func TestMutantsAreNoticed(t *testing.T) {
	for _, m := range mutations {
		if !*all && !m.important {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) { m.mustBeNoticed(t) })
	}
}

// mustBeNoticed fails unless the tests fail for the reason that is expected.
func (m mutation) mustBeNoticed(t *testing.T) {
	t.Helper()
	root := repository.Root(t)
	overlay := m.overlay(t, root)
	args := append([]string{"test", "-overlay", overlay, "-count=1", "-failfast", "-timeout", "15m", "-run", m.run,
		cmp.Or(m.pkg, "./internal/worker")}, m.args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), proof.Variable+"=full")
	out, err := cmd.CombinedOutput()
	switch found := regexp.MustCompile(m.sign).Find(out); {
	case err == nil:
		t.Errorf("%s: %s passes, want a failure that says %q", m.name, m.run, m.sign)
	case found == nil:
		t.Errorf("%s: %s fails (%v), but does not say %q:\n%s", m.name, m.run, err, m.sign, ending(out))
	default:
		t.Logf("%s: %s says %q", m.name, m.run, found)
	}
}

// overlay writes the changed file, and the overlay for go test that names it.
func (m mutation) overlay(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(m.file))
	mutated, err := m.apply(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(path))
	write(t, changed, []byte(mutated))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	write(t, name, overlay)
	return name
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ending is the last part of an output.
func ending(out []byte) []byte { return out[max(0, len(out)-3000):] }
