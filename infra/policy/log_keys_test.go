package policy

import (
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
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goPackage is a package of the worker, as the go command lists it.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Standard                bool
}

// workerPackages returns the packages that the worker is made of, with their compiled
// forms.
func workerPackages(t *testing.T) (all []goPackage) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,Standard", "./cmd/worker")
	list.Dir = filepath.Join("..", "..")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// loggedKeys returns the keys of all attributes that the worker logs, each with the type
// of its column.
func loggedKeys(t *testing.T) map[string]string {
	t.Helper()
	packages, exports := workerPackages(t), map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	k := keyTypes{t: t, files: files, columns: map[string]string{}}
	for _, p := range packages {
		if p.Standard || !strings.HasPrefix(p.ImportPath, "github.com/spotworker/spotworker") {
			continue
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		k.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: compiled}).Check(p.ImportPath, files, parsed, k.info); err != nil {
			t.Fatal(err)
		}
		for _, f := range parsed {
			ast.Inspect(f, k.visit)
		}
	}
	return k.columns
}

// keyTypes collects keys and the types of their values.
type keyTypes struct {
	t       *testing.T
	files   *token.FileSet
	info    *types.Info
	columns map[string]string
}

// visit reads the attributes of calls of a logger, and of lists of attributes that
// several calls share.
func (k *keyTypes) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		k.call(n)
	case *ast.CompositeLit:
		if list, ok := n.Type.(*ast.ArrayType); ok && list.Len == nil && isAny(list.Elt) {
			k.attributes(n.Elts)
		}
	}
	return true
}

func (k *keyTypes) call(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || k.info.Selections[method] == nil || k.info.Selections[method].Recv().String() != "*log/slog.Logger" {
		return
	}
	before := map[string]int{ // the attributes
		"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1,
		"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
	}
	if n, ok := before[method.Sel.Name]; ok && len(call.Args) >= n {
		if n > 0 {
			if _, constant := literal(call.Args[n-1]); !constant {
				k.t.Errorf("%s: the message is not a constant, so that no query can ask for it", k.files.Position(call.Pos()))
			}
		}
		k.attributes(call.Args[n:])
	}
}

func (k *keyTypes) attributes(list []ast.Expr) {
	for i := 0; i+1 < len(list); i += 2 {
		key, ok := literal(list[i])
		if !ok {
			return // such as a list that follows
		}
		column := columnType(k.info.Types[list[i+1]].Type)
		if column == "" {
			k.t.Errorf("%s: no column can hold the %s of key %s", k.files.Position(list[i].Pos()), k.info.Types[list[i+1]].Type, key)
		}
		if before := k.columns[key]; before != "" && before != column {
			k.t.Errorf("%s: key %s is %s here and %s elsewhere", k.files.Position(list[i].Pos()), key, column, before)
		}
		k.columns[key] = column
	}
}

// columnType returns the type of the column for values of a type, as the log's handler
// writes them; empty for a type that the handler cannot write.
func columnType(t types.Type) string {
	switch t.String() {
	case "time.Time":
		return "datetime"
	case "time.Duration", "error":
		return "string"
	case "[]string":
		return "dynamic"
	}
	if types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface)) {
		return "string"
	}
	basic, ok := t.Underlying().(*types.Basic)
	switch {
	case !ok:
		return ""
	case basic.Info()&types.IsString != 0:
		return "string"
	case basic.Info()&types.IsBoolean != 0:
		return "boolean"
	case basic.Info()&types.IsInteger != 0:
		return "long"
	case basic.Info()&types.IsFloat != 0:
		return "real"
	default:
		return ""
	}
}

// TestColumnsHoldEachKey: each key that the worker logs has a column of the right type, in
// the stream and in the table. A line loses a key without a column, and a value of another
// type.
func TestColumnsHoldEachKey(t *testing.T) {
	keys := loggedKeys(t)
	keys["level"], keys["msg"], keys["worker"], keys["vm"] = "string", "string", "string", "string"
	const fewest = 80
	if len(keys) < fewest {
		t.Errorf("found %d keys, want at least %d", len(keys), fewest)
	}
	d := committed(t)
	columns := d["modules/monitoring.bicep"].source
	for key, want := range keys {
		entry := regexp.MustCompile(fmt.Sprintf(`\{ name: '%s', type: '(\w+)' \}`, key))
		found := entry.FindAllStringSubmatch(columns, -1)
		lists := 1
		if want == "datetime" {
			lists = 2 // the stream's and the table's names of the type differ
		}
		if len(found) != lists || slices.ContainsFunc(found, func(m []string) bool { return !strings.EqualFold(m[1], want) }) {
			t.Errorf("columns for key %s = %q, want %d of type %s", key, found, lists, want)
		}
	}
	for _, name := range columnsOf(t, d) {
		if keys[name] == "" && name != "time" {
			t.Errorf("the table has a column %s, which no line has", name)
		}
	}
}

// TestColumnType tries the types of values.
func TestColumnType(t *testing.T) {
	for _, tt := range []struct {
		is   types.Type
		want string
	}{
		{types.Typ[types.String], "string"}, {types.Typ[types.Int], "long"}, {types.Typ[types.Float64], "real"},
		{types.Typ[types.Bool], "boolean"}, {types.NewSlice(types.Typ[types.String]), "dynamic"},
		{types.Universe.Lookup("error").Type(), "string"}, {types.NewMap(types.Typ[types.String], types.Typ[types.Int]), ""},
	} {
		if got := columnType(tt.is); got != tt.want {
			t.Errorf("columnType(%s) = %q, want %q", tt.is, got, tt.want)
		}
	}
}
