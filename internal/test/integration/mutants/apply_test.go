package mutants

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// mutation breaks one rule.
type mutation struct {
	name string
	// important: it is tried in every make integration.
	important bool
	// file is the changed file, from the repository's root. old must occur in it
	// exactly once, and becomes replacement.
	file, old, replacement string
	// run are the tests that must fail, in package pkg, by default ./internal/worker, and
	// args their arguments.
	run, pkg string
	args     []string
	// sign is a pattern of their required output: the promise that is no longer kept.
	sign string
}

// apply returns the changed file's text.
func (m mutation) apply(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s has the text %q %d times, want it once: the code was changed, and this mutation has to follow", m.file, m.old,
			n)
	}
	return strings.Replace(string(source), m.old, m.replacement, 1), nil
}

// tests names the tests in a pattern for go test -run.
var tests = regexp.MustCompile(`Test\w+`)

// TestMutationsApply: each mutation still finds the text that it replaces, makes a
// file that can be parsed, and names tests that are there.
func TestMutationsApply(t *testing.T) {
	root := repository.Root(t)
	for _, m := range mutations {
		mutated, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: the changed file is no Go: %v", m.name, err)
		}
		declared := testsOf(t, filepath.Join(root, filepath.FromSlash(cmp.Or(m.pkg, "./internal/worker"))))
		for _, name := range tests.FindAllString(m.run, -1) {
			if !strings.Contains(declared, "\nfunc "+name+"(") {
				t.Errorf("%s: there is no test %s in %s", m.name, name, cmp.Or(m.pkg, "./internal/worker"))
			}
		}
	}
}

// testsOf returns the text of a package's tests.
func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestTableNamesEveryMutation keeps table.md true, to which docs/proof.md refers.
func TestTableNamesEveryMutation(t *testing.T) {
	text, err := os.ReadFile("table.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		if row := "| " + m.name + " | `" + tests.FindString(m.run); !strings.Contains(string(text), row) {
			t.Errorf("table.md has no row %q", row)
		}
	}
}
