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
	"strconv"
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

// readLog returns what the code of the worker can log.
func readLog(t *testing.T) *logged {
	t.Helper()
	packages, exports := workerPackages(t), map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	l := &logged{t: t, files: files, columns: map[string]string{}, shown: map[string]bool{}}
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
		l.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: compiled}).Check(p.ImportPath, files, parsed, l.info); err != nil {
			t.Fatal(err)
		}
		for _, f := range parsed {
			ast.Inspect(f, l.visit)
		}
	}
	return l
}

// logged has the keys of all attributes, each with the type of its column, and the messages
// that are logged by default.
type logged struct {
	t       *testing.T
	files   *token.FileSet
	info    *types.Info
	columns map[string]string
	shown   map[string]bool
}

// visit reads the attributes of calls of a logger, and of lists of attributes that
// several calls share.
func (l *logged) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		l.call(n)
	case *ast.CompositeLit:
		if list, ok := n.Type.(*ast.ArrayType); ok && list.Len == nil && isAny(list.Elt) {
			l.attributes(n.Elts)
		}
	}
	return true
}

func (l *logged) call(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || l.info.Selections[method] == nil || l.info.Selections[method].Recv().String() != "*log/slog.Logger" {
		return
	}
	before := map[string]int{ // the attributes
		"With": 0, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1,
		"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
	}
	if n, ok := before[method.Sel.Name]; ok && len(call.Args) >= n {
		if n > 0 {
			message, constant := literal(call.Args[n-1])
			if !constant {
				l.t.Errorf("%s: the message is not a constant, so that no query can ask for it", l.files.Position(call.Pos()))
			}
			if !strings.HasPrefix(method.Sel.Name, "Debug") {
				l.shown[message] = true
			}
		}
		l.attributes(call.Args[n:])
	}
}

func (l *logged) attributes(list []ast.Expr) {
	for i := 0; i+1 < len(list); i += 2 {
		key, ok := literal(list[i])
		if !ok {
			return // such as a list that follows
		}
		column := columnType(l.info.Types[list[i+1]].Type)
		if column == "" {
			l.t.Errorf("%s: no column can hold the %s of key %s", l.files.Position(list[i].Pos()), l.info.Types[list[i+1]].Type, key)
		}
		if before := l.columns[key]; before != "" && before != column {
			l.t.Errorf("%s: key %s is %s here and %s elsewhere", l.files.Position(list[i].Pos()), key, column, before)
		}
		l.columns[key] = column
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

func isAny(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "any"
}

// literal returns a text that is written out, in one piece or in several with + between them.
func literal(e ast.Expr) (string, bool) {
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		left, ok := literal(sum.X)
		right, also := literal(sum.Y)
		return left + right, ok && also
	}
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basic.Value)
	return text, err == nil
}

// columns of the log's table that are the agent's and the workspace's own.
var ownColumns = []string{"TimeGenerated", "Computer", "FilePath"}

// columnsOf returns the columns that come from the log's lines.
func columnsOf(d deployment) []string {
	source := d["modules/monitoring.bicep"].source
	var names []string
	for _, match := range regexp.MustCompile(`\{ name: '(\w+)', type: '\w+' \}`).FindAllStringSubmatch(source, -1) {
		if !slices.Contains(ownColumns, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

var (
	quoted   = regexp.MustCompile(`"([^"]*)"`)
	msgTest  = regexp.MustCompile(`\bmsg (==|in|startswith) \(?("[^"]*"(?:, "[^"]*")*)`)
	assigned = regexp.MustCompile(`\b([a-z]+) = `)
	word     = regexp.MustCompile(`\b[A-Za-z_][A-Za-z_]*\b`)
)

// unheard returns the messages that a query asks for and no line has.
func (l *logged) unheard(query string) []string {
	var wrong []string
	for _, test := range msgTest.FindAllStringSubmatch(query, -1) {
		for _, message := range quoted.FindAllStringSubmatch(test[2], -1) {
			if !l.says(test[1], message[1]) {
				wrong = append(wrong, "no line says "+message[0])
			}
		}
	}
	return wrong
}

// says reports whether there is such a message at a level that is logged by
// default.
func (l *logged) says(operator, wanted string) bool {
	for message := range l.shown {
		if message == wanted || operator == "startswith" && strings.HasPrefix(message, wanted) {
			return true
		}
	}
	return false
}

// kusto are the words of the query language that the queries use, and the table.
var kusto = strings.Fields(`where summarize by and or in startswith endswith distinct project order union
	desc let toscalar count ago min countif isnotempty arg_max h m SpotworkerLog_CL`)

// unknownNames returns the names in a query that are neither columns nor its own.
func unknownNames(query string, columns []string) []string {
	query = regexp.MustCompile(`\$\{\w+\}`).ReplaceAllString(strings.Trim(query, "'"), "")
	query = quoted.ReplaceAllString(query, `""`)
	known := slices.Concat(columns, kusto)
	for _, match := range assigned.FindAllStringSubmatch(query, -1) {
		known = append(known, match[1])
	}
	var wrong []string
	for _, name := range word.FindAllString(query, -1) {
		if !slices.Contains(known, name) {
			wrong = append(wrong, "there is no column "+name)
		}
	}
	return wrong
}

// TestLog: each key that the worker logs has a column of the right type, in
// the stream and in the table. A line loses a key without a column, and a value of another
// type. Every message that the alert's query asks for is logged by default, and every name
// in the query is a column.
func TestLog(t *testing.T) {
	l, d := readLog(t), committed(t)
	keys := l.columns
	keys["level"], keys["msg"], keys["worker"], keys["vm"] = "string", "string", "string", "string"
	const fewest = 80
	if len(keys) < fewest {
		t.Errorf("found %d keys, want at least %d", len(keys), fewest)
	}
	source := d["modules/monitoring.bicep"].source
	for key, want := range keys {
		entry := regexp.MustCompile(fmt.Sprintf(`\{ name: '%s', type: '(\w+)' \}`, key))
		found := entry.FindAllStringSubmatch(source, -1)
		lists := 1
		if want == "datetime" {
			lists = 2 // the stream's and the table's names of the type differ
		}
		if len(found) != lists || slices.ContainsFunc(found, func(m []string) bool { return !strings.EqualFold(m[1], want) }) {
			t.Errorf("columns for key %s = %q, want %d of type %s", key, found, lists, want)
		}
	}
	columns := columnsOf(d)
	for _, name := range columns {
		if keys[name] == "" && name != "time" {
			t.Errorf("the table has a column %s, which no line has", name)
		}
	}
	queries := 0
	for _, f := range d {
		for _, r := range f.Resources {
			if r.Type != "Microsoft.Insights/scheduledQueryRules" || r.Existing {
				continue
			}
			queries++
			query := text(named(f.Variables, "query"))
			for _, wrong := range append(l.unheard(query), unknownNames(query, slices.Concat(columns, ownColumns))...) {
				t.Errorf("%s, in the query\n%s", wrong, query)
			}
		}
	}
	if queries != 1 {
		t.Errorf("%d alerts over the log, want 1: all others come from metrics", queries)
	}
}
