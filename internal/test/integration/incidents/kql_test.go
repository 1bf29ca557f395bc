//go:build integration

package incidents

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// KQL cannot run here. This evaluator has the part of it that the alerts over the log
// use: let, where, summarize, project, distinct, inner join and union, with the few
// functions and operators that occur. Any other part fails the test.

// row is a row of a table. A column that it does not have is null.
type row map[string]any

// engine evaluates queries at one moment. Values are nil, bool, float64, string, time.Time
// and time.Duration.
type engine struct {
	tables  map[string][]row
	scalars map[string]any
	now     time.Time

	tokens []string
	at     int
}

var token = regexp.MustCompile(`"[^"]*"|\d+(?:\.\d+)?[smhd]?|!?[A-Za-z_][A-Za-z0-9_]*|[<>=!]=|[<>=|();,*+-]`)

// evaluate returns the rows of a query.
func evaluate(query string, tables map[string][]row, now time.Time) (rows []row, err error) {
	defer func() {
		if p := recover(); p != nil {
			rows, err = nil, fmt.Errorf("%v", p)
		}
	}()
	e := &engine{tables: maps.Clone(tables), scalars: map[string]any{}, now: now, tokens: token.FindAllString(query, -1)}
	if left := strings.TrimSpace(token.ReplaceAllString(query, "")); left != "" {
		return nil, fmt.Errorf("unknown characters %q", left)
	}
	for e.accept("let") {
		name := e.take()
		e.expect("=")
		if e.accept("toscalar") {
			e.expect("(")
			rows := e.pipeline()
			e.expect(")")
			e.scalars[name] = only(rows)
		} else {
			e.tables[name] = e.pipeline()
		}
		e.expect(";")
	}
	rows = e.pipeline()
	if e.at < len(e.tokens) {
		return nil, fmt.Errorf("%q is left", e.tokens[e.at:])
	}
	return rows, nil
}

// only returns the value of a table of one row and column; null for none.
func only(rows []row) any {
	for _, r := range rows {
		for _, v := range r {
			return v
		}
	}
	return nil
}

func (e *engine) peek() string {
	if e.at < len(e.tokens) {
		return e.tokens[e.at]
	}
	return ""
}

func (e *engine) take() string {
	t := e.peek()
	e.at++
	return t
}

func (e *engine) accept(t string) bool {
	if e.peek() != t {
		return false
	}
	e.at++
	return true
}

func (e *engine) expect(t string) {
	if got := e.take(); got != t {
		panic(fmt.Sprintf("%q where %q should be", got, t))
	}
}

func (e *engine) pipeline() []row {
	var rows []row
	if e.accept("union") {
		rows = e.table()
		for e.accept(",") {
			rows = slices.Concat(rows, e.table())
		}
	} else {
		rows = e.table()
	}
	for e.accept("|") {
		switch op := e.take(); op {
		case "where":
			holds := e.expression()
			rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return holds(r) != true })
		case "summarize":
			rows = e.summarize(rows)
		case "project":
			name, value := e.assignment()
			for i, r := range rows {
				rows[i] = row{name: value(r)}
			}
		case "distinct":
			rows = groups(rows, []string{e.take()}, func([]row) row { return row{} })
		case "join":
			for _, t := range []string{"kind", "=", "inner", "("} {
				e.expect(t)
			}
			right := e.pipeline()
			e.expect(")")
			e.expect("on")
			column := e.take()
			rows = slices.DeleteFunc(slices.Clone(rows), func(l row) bool {
				return !slices.ContainsFunc(right, func(r row) bool { return r[column] == l[column] })
			})
		default:
			panic("unknown operator " + op)
		}
	}
	return rows
}

func (e *engine) table() []row {
	name := e.take()
	rows, ok := e.tables[name]
	if !ok {
		panic("unknown table " + name)
	}
	return slices.Clone(rows)
}

func (e *engine) assignment() (name string, value func(row) any) {
	name = e.take()
	e.expect("=")
	return name, e.expression()
}

// groups makes a row of each group of rows that have the same values in columns.
func groups(rows []row, columns []string, sum func([]row) row) []row {
	keys, grouped := []string{}, map[string][]row{}
	for _, r := range rows {
		key := ""
		for _, c := range columns {
			key += fmt.Sprintf("%v\x00", r[c])
		}
		if grouped[key] == nil {
			keys = append(keys, key)
		}
		grouped[key] = append(grouped[key], r)
	}
	var out []row
	for _, key := range keys {
		r := sum(grouped[key])
		for _, c := range columns {
			r[c] = grouped[key][0][c]
		}
		out = append(out, r)
	}
	return out
}

func (e *engine) summarize(rows []row) []row {
	var sums []func([]row, row)
	for {
		name := ""
		if e.at+1 < len(e.tokens) && e.tokens[e.at+1] == "=" {
			name = e.take()
			e.expect("=")
		}
		sums = append(sums, e.aggregate(name))
		if !e.accept(",") {
			break
		}
	}
	var columns []string
	if e.accept("by") {
		columns = append(columns, e.take())
		for e.accept(",") {
			columns = append(columns, e.take())
		}
	}
	if len(columns) == 0 && len(rows) == 0 {
		out := row{} // without groups there is always a row
		for _, sum := range sums {
			sum(nil, out)
		}
		return []row{out}
	}
	return groups(rows, columns, func(group []row) row {
		out := row{}
		for _, sum := range sums {
			sum(group, out)
		}
		return out
	})
}

func (e *engine) aggregate(name string) func([]row, row) {
	function := e.take()
	name = cmp.Or(name, function+"_")
	e.expect("(")
	var argument func(row) any
	var others []string
	if !e.accept(")") {
		argument = e.expression()
		for e.accept(",") {
			others = append(others, e.take())
		}
		e.expect(")")
	}
	return func(rows []row, out row) {
		n, values, best := 0.0, map[any]bool{}, row(nil)
		var least any
		for _, r := range rows {
			if argument == nil {
				n++
				continue
			}
			v := argument(r)
			if v == true {
				n++
			}
			if v != nil {
				values[v] = true
				if least == nil || compare(v, least) < 0 {
					least = v
				}
				if best == nil || compare(v, argument(best)) > 0 {
					best = r
				}
			}
		}
		switch function {
		case "count", "countif":
			out[name] = n
		case "dcount":
			out[name] = float64(len(values))
		case "min":
			out[name] = least
		case "arg_max":
			if best != nil {
				out["TimeGenerated"] = best["TimeGenerated"]
				for _, c := range others {
					out[c] = best[c]
				}
			}
		default:
			panic("unknown function " + function)
		}
	}
}

func (e *engine) expression() func(row) any {
	left := e.comparison()
	for e.accept("and") {
		first, second := left, e.comparison()
		left = func(r row) any { return first(r) == true && second(r) == true }
	}
	return left
}

func (e *engine) comparison() func(row) any {
	left := e.product()
	switch op := e.peek(); op {
	case "==", "<", ">", "startswith", "!endswith":
		e.take()
		right := e.product()
		return func(r row) any {
			a, b := left(r), right(r)
			if a == nil || b == nil {
				return false
			}
			switch op {
			case "==":
				return a == b
			case "<":
				return compare(a, b) < 0
			case ">":
				return compare(a, b) > 0
			case "startswith":
				return strings.HasPrefix(strings.ToLower(a.(string)), strings.ToLower(b.(string)))
			}
			return !strings.HasSuffix(strings.ToLower(a.(string)), strings.ToLower(b.(string)))
		}
	case "in":
		e.take()
		e.expect("(")
		values := map[any]bool{}
		for {
			values[e.product()(nil)] = true
			if !e.accept(",") {
				break
			}
		}
		e.expect(")")
		return func(r row) any { return values[left(r)] }
	}
	return left
}

func (e *engine) product() func(row) any {
	left := e.value()
	for e.accept("*") {
		first, second := left, e.value()
		left = func(r row) any { return first(r).(float64) * second(r).(float64) }
	}
	return left
}

func (e *engine) value() func(row) any {
	t := e.take()
	switch {
	case strings.HasPrefix(t, `"`):
		return func(row) any { return strings.Trim(t, `"`) }
	case t == "-":
		positive := e.value()
		return func(r row) any { return -positive(r).(time.Duration) }
	case t >= "0" && t <= "9~":
		if n, err := strconv.ParseFloat(t, 64); err == nil {
			return func(row) any { return n }
		}
		n, err := strconv.Atoi(t[:len(t)-1])
		if err != nil {
			panic("unknown number " + t)
		}
		d := time.Duration(n) * map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[t[len(t)-1]]
		return func(row) any { return d }
	case e.accept("("):
		argument := e.expression()
		e.expect(")")
		switch t {
		case "ago":
			return func(r row) any { return e.now.Add(-argument(r).(time.Duration)) }
		case "isnotempty":
			return func(r row) any { v := argument(r); return v != nil && v != "" }
		}
		panic("unknown function " + t)
	}
	if v, ok := e.scalars[t]; ok {
		return func(row) any { return v }
	}
	return func(r row) any { return r[t] }
}

func compare(a, b any) int {
	switch a := a.(type) {
	case float64:
		return cmp.Compare(a, b.(float64))
	case time.Time:
		return a.Compare(b.(time.Time))
	case string:
		return strings.Compare(a, b.(string))
	case bool:
		return 0
	}
	panic(fmt.Sprintf("%T cannot be compared", a))
}

// TestEvaluate tries the evaluator on a table whose answers are known.
func TestEvaluate(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	before := func(m int) time.Time { return now.Add(-time.Duration(m) * time.Minute) }
	tables := map[string][]row{"T": {
		{"TimeGenerated": before(1), "Computer": "a", "msg": "Down", "n": 3.0},
		{"TimeGenerated": before(9), "Computer": "a", "msg": "up", "n": 0.0},
		{"TimeGenerated": before(5), "Computer": "b", "msg": "up", "since": before(90)},
	}, "H": {{"Computer": "b"}, {"Computer": "c"}}}
	for query, want := range map[string]string{
		`T | where msg == "up"`: "2",
		`T | where TimeGenerated > ago(5m) and msg startswith "down"`:                              "1",
		`T | where since < ago(1h)`:                                                                "1",
		`T | where isnotempty(since)`:                                                              "1",
		`T | where msg in ("Down", "left") | summarize x = dcount(Computer) | where x > 0.5 * 1`:   "1",
		`T | summarize arg_max(TimeGenerated, msg) by Computer | where msg == "up"`:                "1",
		`T | summarize c = countif(msg == "up"), m = min(n) by Computer | where c == 1 and m == 0`: "1",
		`let x = toscalar(T | where msg == "none" | summarize count()); T | where x == 0`:          "3",
		`let a = T | project k = msg; let b = H | project k = Computer; union a, b`:                "5",
		`T | join kind=inner (H | distinct Computer) on Computer`:                                  "1",
		`T | where Computer !endswith "B"`:                                                         "2",
		`T | extend x = 1`:                                                                         "unknown operator extend",
		`T | where coalesce(n) == 1`:                                                               "unknown function coalesce",
		`T | where n % 2 == 1`:                                                                     `unknown characters "%"`,
	} {
		rows, err := evaluate(query, tables, now)
		got := strconv.Itoa(len(rows))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s = %s, want %s", query, got, want)
		}
	}
}
