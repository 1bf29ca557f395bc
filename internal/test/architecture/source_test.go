package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// source holds the rules' facts about one Go file.
type source struct {
	path     string // in the module, with slashes
	dir      string // of the package, as a pattern: "./internal/queue", or "."
	pkg      string // as its package clause says
	test     bool
	imports  []mention // module packages in the form of dir
	literals []mention // values of all string literals but the imports
	skips    []mention // calls that skip a test
}

// mention is a text and the line that has it.
type mention struct {
	text string
	line int
}

// readModule returns all Go files of the module at the root of fsys, with all build
// constraints: an import that only one platform or one build tag sees counts like any
// other. It leaves out nested modules and the directories that the go command leaves out.
func readModule(fsys fs.FS) ([]source, error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, err
	}
	var files []source
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(fsys, name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		file, err := readSource(fsys, module, name)
		files = append(files, file)
		return err
	})
	return files, err
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

// modulePath returns the module's path from its go.mod.
func modulePath(fsys fs.FS) (string, error) {
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if module, found := strings.CutPrefix(line, "module "); found {
			return strings.TrimSpace(module), nil
		}
	}
	return "", fmt.Errorf("go.mod has no module line")
}

// skipped reports whether a directory holds no packages of this module.
func skipped(fsys fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	if base == "testdata" || base == "vendor" || base == "node_modules" {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

// readSource reads one file.
func readSource(fsys fs.FS, module, name string) (source, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return source{}, err
	}
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	file := source{
		path: name,
		dir:  packageOf(path.Dir(name)),
		pkg:  strings.TrimSuffix(tree.Name.Name, "_test"),
		test: strings.HasSuffix(name, "_test.go"),
	}
	for _, spec := range tree.Imports {
		m := textOf(positions, spec.Path)
		file.imports = append(file.imports, mention{local(module, m.text), m.line})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if _, isImport := n.(*ast.ImportSpec); isImport {
			return false
		}
		if lit, isLiteral := n.(*ast.BasicLit); isLiteral && lit.Kind == token.STRING {
			file.literals = append(file.literals, textOf(positions, lit))
		}
		if call, isCall := n.(*ast.CallExpr); isCall && skips(call) {
			file.skips = append(file.skips, mention{types.ExprString(call.Fun), positions.Position(call.Pos()).Line})
		}
		return true
	})
	return file, nil
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

// textOf returns the value of a string literal. The parser has checked that
// it is one.
func textOf(positions *token.FileSet, lit *ast.BasicLit) mention {
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		value = lit.Value
	}
	return mention{value, positions.Position(lit.Pos()).Line}
}

// packageOf returns a directory of the module as a pattern that names it.
func packageOf(dir string) string {
	if dir == "." {
		return "."
	}
	return "./" + dir
}

// local returns an import path in the form of packageOf where it names a
// package of the module, and as it is otherwise.
func local(module, imported string) string {
	if imported == module {
		return "."
	}
	if below, found := strings.CutPrefix(imported, module+"/"); found {
		return "./" + below
	}
	return imported
}

// matchesAny reports whether one of patterns names pkg.
func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// matches reports whether pattern names pkg.
func matches(pattern, pkg string) bool {
	tree, below := strings.CutSuffix(pattern, "/...")
	if !below {
		return pattern == pkg
	}
	return pkg == tree || strings.HasPrefix(pkg, tree+"/")
}
