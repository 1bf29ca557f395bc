// Package architecture checks how many files a package has, its name, a few calls and
// literals, and that documents name tests, files and headings that exist. It consists of
// tests only. Which packages may import each other is in .golangci.yml (depguard).
package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostFiles is how many files a package may have, tests and the files of single platforms
// aside: one subject a file. Move a subject with a narrow boundary into a package of its own.
const mostFiles = 20

// platformFile is the name of a file that only one platform, or all but one, builds.
var platformFile = regexp.MustCompile(`_(linux|windows|darwin|unix|other)\.go$`)

// namesOfNothing say nothing to a caller, and such packages attract whatever has no home.
var namesOfNothing = []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}

// metadataAddress is written once: every other place takes preempt.DefaultEndpoint or a
// flag, so that a test can be sure to hand in a loopback address.
const metadataAddress = "169.254.169.254"

// Folders that may name the address, and that may skip a test: the second of the first puts
// it on a loopback interface; package jobtest ends a test in the middle, for its users.
var (
	namesAddress = []string{"internal/preempt", "internal/test/integration/namespace"}
	skipsTests   = []string{"internal/test/need", "internal/test/proof", "job/jobtest"}
)

// TestFiles checks each Go file, with all build constraints.
func TestFiles(t *testing.T) {
	files := map[string]int{}
	root := os.DirFS("../../..")
	positions := token.NewFileSet()
	err := walkFiles(root, func(name string) error {
		folder := path.Dir(name)
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, part := range append(strings.Split(folder, "/"), strings.TrimSuffix(f.Name.Name, "_test")) {
			if slices.Contains(namesOfNothing, part) {
				t.Errorf("%s: package %s says nothing to a caller", name, part)
			}
		}
		imports := func(path string) bool {
			return slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(path) })
		}
		isTest := strings.HasSuffix(name, "_test.go")
		if !isTest && !platformFile.MatchString(name) {
			files[folder]++
		}
		// In tests with package rapid a skip ends one step, not the test.
		maySkip := slices.Contains(skipsTests, folder) || !imports("testing") || imports("pgregory.net/rapid")
		mayName := isTest || slices.ContainsFunc(namesAddress, func(f string) bool { return strings.HasPrefix(folder+"/", f+"/") })
		ast.Inspect(f, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && !mayName && strings.Contains(literal.Value, metadataAddress) {
				t.Errorf("%s: use preempt.DefaultEndpoint or a flag in the place of %s", positions.Position(n.Pos()), metadataAddress)
			}
			if call, ok := n.(*ast.CallExpr); ok && !maySkip && skips(call) {
				t.Errorf("%s: only packages need and proof skip tests: a skip names what the machine lacks, and fails in CI",
					positions.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d packages, %v", len(files), err)
	}
	for folder, n := range files {
		if n > mostFiles {
			t.Errorf("%s has %d files, at most %d are allowed", folder, n, mostFiles)
		}
	}
}

// skips reports whether a call skips a test or a benchmark.
func skips(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
		return false
	}
	receiver := types.ExprString(method.X)
	receiver = receiver[strings.LastIndex(receiver, ".")+1:]
	return slices.Contains([]string{"t", "tb", "b", "f"}, receiver)
}

// walkFiles visits all files of fsys outside hidden folders.
func walkFiles(fsys fs.FS, visit func(name string) error) error {
	return fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		return visit(name)
	})
}
