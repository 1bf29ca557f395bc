package mutation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Package is a package of the module whose code gets mutants.
type Package struct {
	Pattern string // "./internal/queue"
	Name    string
	Mutants []*Mutant

	dir     string
	module  string // the module's root folder
	path    string // import path
	files   []*sourceFile
	exports map[string]string // files with export data, by import path
}

// listed is a package as the go command prints it.
type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles                       []string
	DepOnly                       bool
	Module                        *struct{ Dir string }
}

// Load reads packages and generates their mutants. The patterns name packages of the module
// in or above the folder.
func Load(ctx context.Context, folder string, patterns ...string) ([]*Package, error) {
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,DepOnly,Module", "--",
		"os", "strconv", "sync/atomic"}, patterns...) // the helpers import these
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the caller's packages
	cmd.Dir = folder
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w\n%s", err, &problems)
	}
	var packages []*Package
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly && l.Module != nil {
			p, err := newPackage(l, exports)
			if err != nil {
				return nil, err
			}
			packages = append(packages, p)
		}
	}
	slices.SortFunc(packages, func(a, b *Package) int { return strings.Compare(a.Pattern, b.Pattern) })
	for _, p := range packages {
		if err := p.generate(); err != nil {
			return nil, fmt.Errorf("generate mutants of %s: %w", p.Pattern, err)
		}
	}
	number(packages)
	return packages, nil
}

func newPackage(l listed, exports map[string]string) (*Package, error) {
	from, err := filepath.Rel(l.Module.Dir, l.Dir)
	if err != nil {
		return nil, err
	}
	p := &Package{Pattern: "./" + filepath.ToSlash(from), Name: l.Name, dir: l.Dir, module: l.Module.Dir, path: l.ImportPath, exports: exports}
	for _, name := range l.GoFiles {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, &sourceFile{path: filepath.Join(l.Dir, name), text: string(text)})
	}
	return p, nil
}

// number gives each mutant its number, from 1 on.
func number(packages []*Package) {
	n := 0
	for _, p := range packages {
		for _, m := range p.Mutants {
			n++
			m.ID = n
		}
	}
}

// generate makes the package's mutants, and drops those that do not compile.
func (p *Package) generate() error {
	texts := make([]string, len(p.files))
	for i, file := range p.files {
		texts[i] = file.text
	}
	fset, parsed, info, problems, err := p.check(texts)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problems[0]
	}
	g := &generator{pkg: p, fset: fset, info: info, units: make(map[types.Object]*measure)}
	for _, file := range parsed {
		g.constants(file)
	}
	for i, file := range parsed {
		g.source = p.files[i]
		g.file(file)
	}
	return p.dropInvalid()
}

// check parses and type-checks texts of the package's files. problems are the violations of
// the rules of types.
func (p *Package) check(texts []string) (*token.FileSet, []*ast.File, *types.Info, []types.Error, error) {
	fset := token.NewFileSet()
	files := make([]*ast.File, len(texts))
	for i, text := range texts {
		name := "helpers.go"
		if i < len(p.files) {
			name = p.files[i].path
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		files[i] = file
	}
	var problems []types.Error
	config := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			name, known := p.exports[path]
			if !known {
				return nil, fmt.Errorf("no export data of %s", path)
			}
			return os.Open(name)
		}),
		Error: func(err error) {
			if problem, ok := errors.AsType[types.Error](err); ok {
				problems = append(problems, problem)
			}
		},
	}
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
	}
	_, _ = config.Check(p.path, fset, files, info) // problems has all errors
	return fset, files, info, problems, nil
}
