// Command prooftests prints what make proof runs, as arguments of go test: a pattern of the tests
// whose length package proof decides, and their packages, which may be given in the order in which
// they come first. All other tests are the same in full as in make test. A test counts if it uses
// package proof, itself or by a function or variable of its package. -in FOLDER leaves out the
// packages that are not in the folder, -out FOLDER the packages in it.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path"
	"slices"
	"strings"
)

const importPath = `"github.com/spotworker/spotworker/internal/test/proof"`

func main() {
	log.SetFlags(0)
	in := flag.String("in", "", "the folder of all packages")
	out := flag.String("out", "", "the folder of no package")
	flag.Parse()
	packages, err := find(os.DirFS("."))
	if err != nil {
		log.Fatal(err)
	}
	var tests, folders []string
	for folder, names := range packages {
		if !within(folder, *in) || *out != "" && within(folder, *out) {
			continue
		}
		tests, folders = append(tests, names...), append(folders, "./"+folder)
	}
	slices.Sort(tests)
	first := flag.Args()
	slices.SortFunc(folders, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(first, a), rank(first, b)), cmp.Compare(a, b))
	})
	fmt.Printf("-run=^(%s)$ %s\n", strings.Join(slices.Compact(tests), "|"), strings.Join(folders, " "))
}

// within reports whether a package is in a folder or below it; "" is the root.
func within(folder, root string) bool {
	return root == "" || folder == root || strings.HasPrefix(folder, root+"/")
}

// rank returns the place of a folder among the folders that come first, or the place after them.
func rank(first []string, folder string) int {
	if i := slices.Index(first, folder); i >= 0 {
		return i
	}
	return len(first)
}

// find returns the names of the tests, by folder. It leaves out integration tests.
func find(tree fs.FS) (map[string][]string, error) {
	files := map[string][]*ast.File{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "integration" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		folder := path.Dir(name)
		files[folder] = append(files[folder], file)
		return err
	})
	found := map[string][]string{}
	for folder, list := range files {
		if names := testsOf(list); len(names) > 0 {
			found[folder] = names
		}
	}
	return found, err
}

// testsOf returns the tests of one package that use package proof.
func testsOf(files []*ast.File) (tests []string) {
	names := map[string][]string{} // which names each declaration uses
	proves := map[string]bool{}    // the declarations that use package proof
	for _, file := range files {
		imports := slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == importPath })
		for _, declaration := range file.Decls {
			for _, declared := range declaredBy(declaration) {
				for _, used := range usedIn(declaration) {
					names[declared] = append(names[declared], used)
					proves[declared] = proves[declared] || imports && used == "proof"
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for name, used := range names {
			if !proves[name] && slices.ContainsFunc(used, func(other string) bool { return proves[other] }) {
				proves[name], changed = true, true
			}
		}
	}
	for name := range names {
		if proves[name] && strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	return tests
}

// declaredBy returns the names of the functions and variables of a declaration. A method goes by
// its own name.
func declaredBy(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range value.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// usedIn returns all names in a declaration, but for the name of a function itself.
func usedIn(declaration ast.Decl) (names []string) {
	var skip *ast.Ident
	if f, ok := declaration.(*ast.FuncDecl); ok {
		skip = f.Name
	}
	ast.Inspect(declaration, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id != skip {
			names = append(names, id.Name)
		}
		return true
	})
	return names
}
