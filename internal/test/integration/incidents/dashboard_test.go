//go:build integration

package incidents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// unseen are queries that find nothing in the recording: their events did not happen.
var unseen = []string{
	"Alerts", "Failures by class", "Calls that fail",
}

// TestDashboard asks the dashboard's queries of real scrapes: promtool understands each,
// and each finds something.
func TestDashboard(t *testing.T) {
	r := read(t, "sample")
	at := time.Duration(r.ticks-1) * every
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: %s\ntests:\n  - interval: %s\n    input_series:\n", rules(t), every, every)
	for _, s := range r.series {
		fmt.Fprintf(&b, "      - {series: %s, values: %q}\n", inYAML(s[0]), s[1])
	}
	b.WriteString("    promql_expr_test:\n")
	asked := map[string]string{} // the purpose of a query
	for _, p := range dashboard(t) {
		for _, q := range p.Targets {
			asked[q.Expr] = p.Title
			fmt.Fprintf(&b, "      - {expr: %s, eval_time: %s}\n", inYAML(q.Expr), at)
		}
	}
	out := test(t, b.String())
	found := 0
	for expr, title := range asked {
		got := strings.Contains(out, fmt.Sprintf("expr: %q, time: %s,", expr, at))
		expected := true
		for _, u := range unseen {
			expected = expected && u != title
		}
		if got {
			found++
		}
		if !got && expected {
			t.Errorf("%s: the query finds nothing: %s", title, expr)
		}
	}
	if found == 0 {
		t.Fatalf("no query finds anything:\n%s", out)
	}
	t.Logf("%d of %d queries find something", found, len(asked))
}

// panel is a panel of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// dashboard reads the dashboard that Grafana imports.
func dashboard(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository.Root(t), "infra", "grafana", "spotworker.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Panels []panel }
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all.Panels
}
