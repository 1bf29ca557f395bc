package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedTest is a test, fuzz target or benchmark as a document names it, with the
// package before it or none, and declaredTest as a file declares it.
var (
	namedTest    = regexp.MustCompile(`(?:([\w/]+): )?\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)`)
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestDocsNameRealTests: a promise names only tests that exist, with the package that has
// them.
func TestDocsNameRealTests(t *testing.T) {
	root, declared := os.DirFS("../../.."), declaredTests(t)
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
			for _, match := range namedTest.FindAllStringSubmatch(line, -1) {
				named++
				checkTestName(t, fmt.Sprintf("%s:%d", path.Base(document), n+1), match[0], declared)
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}

// declaredTests returns the directories of the module's tests, by the name of the test.
func declaredTests(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS("../../..")
	declared := map[string][]string{}
	err := walkFiles(root, func(name string) error {
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, match := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(match[1])] = append(declared[string(match[1])], path.Dir(name))
		}
		return err
	})
	if err != nil || len(declared) == 0 {
		t.Fatalf("read the module's tests: %d, %v", len(declared), err)
	}
	return declared
}

// checkTestName checks that a test exists that is named somewhere, with its package or
// without.
func checkTestName(t *testing.T, where, name string, declared map[string][]string) {
	t.Helper()
	match := namedTest.FindStringSubmatch(name)
	if match == nil {
		t.Errorf("%s: %q is not the name of a test", where, name)
		return
	}
	within := func(dir string) bool { return strings.HasSuffix("/"+dir, "/"+match[1]) }
	if declared[match[2]] == nil {
		t.Errorf("%s names %s, and there is no such test", where, match[2])
	} else if match[1] != "" && !slices.ContainsFunc(declared[match[2]], within) {
		t.Errorf("%s names %s: %s, which is in %s", where, match[1], match[2], declared[match[2]])
	}
}
