package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged describes the lines that the worker's code can log: the level of each
// message, and the keys of all attributes.
type logged struct {
	levels map[string]string
	keys   map[string]bool
}

// logOf reads it from the code of this module's packages, without tests.
func logOf(t *testing.T) logged {
	t.Helper()
	l := logged{levels: map[string]string{}, keys: map[string]bool{"time": true, "level": true, "msg": true}}
	root := filepath.Join("..", "..", "internal")
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				l.note(n)
			case *ast.CompositeLit:
				// Attributes that several calls share are put into a list first.
				if list, ok := n.Type.(*ast.ArrayType); ok && list.Len == nil && isAny(list.Elt) {
					l.attributes(n.Elts)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// note notes a call if it logs, or makes a logger with attributes.
func (l logged) note(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	attributes := call.Args
	switch level := strings.TrimSuffix(method.Sel.Name, "Context"); level {
	case "With":
	case "Log": // whose level may be debug in some cases
		if len(attributes) < 3 {
			return
		}
		message, ok := literal(attributes[2])
		if !ok {
			return
		}
		l.levels[message] = "Info"
		attributes = attributes[3:]
	case "Debug", "Info", "Warn", "Error":
		if strings.HasSuffix(method.Sel.Name, "Context") && len(attributes) > 0 {
			attributes = attributes[1:]
		}
		if len(attributes) == 0 {
			return
		}
		message, ok := literal(attributes[0])
		if !ok {
			return
		}
		l.levels[message] = level
		attributes = attributes[1:]
	default:
		return
	}
	l.attributes(attributes)
}

// attributes notes the keys of a list of keys and values.
func (l logged) attributes(list []ast.Expr) {
	for i := 0; i < len(list); i += 2 {
		if key, ok := literal(list[i]); ok {
			l.keys[key] = true
		}
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
func columnsOf(t *testing.T, d deployment) []string {
	t.Helper()
	source := d["modules/monitoring.bicep"].source
	var names []string
	for _, match := range regexp.MustCompile(`\{ name: '(\w+)', type: '\w+' \}`).FindAllStringSubmatch(source, -1) {
		if !slices.Contains(ownColumns, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// TestColumnsAreLogged: each column that the table keeps of a line is a key that
// lines have.
func TestColumnsAreLogged(t *testing.T) {
	l := logOf(t)
	columns := columnsOf(t, committed(t))
	const fewest = 17
	if len(columns) < fewest {
		t.Errorf("found %d columns, want at least %d", len(columns), fewest)
	}
	for _, name := range columns {
		if !l.keys[name] && name != "worker" && name != "vm" { // which each line has
			t.Errorf("the table has a column %s, which no line has", name)
		}
	}
}

// queries returns the query of the alert over the log, and the query in the documentation.
func queries(t *testing.T, d deployment) []string {
	t.Helper()
	list := logAlerts(d)
	for _, block := range strings.Split(document(t, "deploy.md"), "```kusto\n")[1:] {
		query, _, _ := strings.Cut(block, "```")
		list = append(list, query)
	}
	const want = 2
	if len(list) != want {
		t.Errorf("found %d queries, want %d", len(list), want)
	}
	return list
}

// TestQueriesAskForLines: every message that a query asks for is logged, by default
// too, where debug lines are not; and every name in a query is a column.
func TestQueriesAskForLines(t *testing.T) {
	l, d := logOf(t), committed(t)
	columns := slices.Concat(columnsOf(t, d), ownColumns)
	for _, query := range queries(t, d) {
		for _, wrong := range append(l.unheard(query), unknownNames(query, columns)...) {
			t.Errorf("%s, in the query\n%s", wrong, query)
		}
	}
}

var (
	quoted   = regexp.MustCompile(`"([^"]*)"`)
	msgTest  = regexp.MustCompile(`\bmsg (==|in|startswith) \(?("[^"]*"(?:, "[^"]*")*)`)
	assigned = regexp.MustCompile(`\b([a-z]+) = `)
	word     = regexp.MustCompile(`\b[A-Za-z_][A-Za-z_]*\b`)
)

// unheard returns the messages that a query asks for and no line has.
func (l logged) unheard(query string) []string {
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
func (l logged) says(operator, wanted string) bool {
	for message, level := range l.levels {
		hit := message == wanted || operator == "startswith" && strings.HasPrefix(message, wanted)
		if hit && level != "Debug" {
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

// TestWrongQueriesAreFound breaks queries.
func TestWrongQueriesAreFound(t *testing.T) {
	l := logged{levels: map[string]string{"job started": "Info", "range hashed": "Debug"}}
	columns := []string{"TimeGenerated", "msg", "job_id"}
	for query, want := range map[string]string{
		`'${tableName} | where msg == "job started" | summarize n = min(TimeGenerated) by job_id | where n < ago(${h}h)'`: "",
		`'T | where msg == "job begun"'`:                                       `no line says "job begun"; there is no column T`,
		`'${t} | where msg == "range hashed"'`:                                 `no line says "range hashed"`,
		`'${t} | where msg in ("job started", "job ended") and job_id == "x"'`: `no line says "job ended"`,
		`'${t} | where msg startswith "job st"'`:                               "",
		`'${t} | where isnotempty(jobid)'`:                                     "there is no column jobid",
	} {
		if got := strings.Join(append(l.unheard(query), unknownNames(query, columns)...), "; "); got != want {
			t.Errorf("findings in %s = %q, want %q", query, got, want)
		}
	}
}
