package architecture

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedTest is a test, fuzz target or benchmark as a document names it, and
// declaredTest as a file declares it.
var (
	namedTest    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestDocsNameRealTests: a promise that names the test which holds it names one
// that is there.
func TestDocsNameRealTests(t *testing.T) {
	root := os.DirFS("../..")
	declared := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, match := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(match[1])] = true
		}
		return err
	})
	if err != nil || len(declared) == 0 {
		t.Fatalf("read the module's tests: %d, %v", len(declared), err)
	}
	documents, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, document := range slices.Concat([]string{"README.md"}, documents) {
		text, err := fs.ReadFile(root, document)
		if err != nil {
			t.Fatal(err)
		}
		code := false // an example's tests are the reader's
		for n, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code {
				continue
			}
			for _, name := range namedTest.FindAllString(line, -1) {
				if named++; !declared[name] {
					t.Errorf("%s:%d names %s, and there is no such test", path.Base(document), n+1, name)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}
