package alerts

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that come from the table")

const (
	tableBegin = "<!-- generated: begin (go test ./infra/alerts -update) -->\n"
	tableEnd   = "<!-- generated: end alerts -->\n"
)

var root = filepath.Join("..", "..")

// TestFilesAreOfTheTable: rules, module and documentation agree with the table.
func TestFilesAreOfTheTable(t *testing.T) {
	dashboard, err := Grafana()
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(root, "docs", "operating.md")
	for path, want := range map[string]string{
		filepath.Join(root, "infra", "prometheus", "alerts.yml"):                    Prometheus(),
		filepath.Join(root, "infra", "bicep", "modules", "prometheus-alerts.bicep"): Bicep(),
		filepath.Join(root, "infra", "grafana", "spotworker.json"):                  dashboard,
		document: between(t, document, tableBegin, Markdown(), tableEnd),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the table says: write it with -update", path)
		}
	}
}

// between returns a document with the text between begin and end replaced.
func between(t *testing.T, path, begin, content, end string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s has no place for what is generated, between %q and %q", path, begin, end)
	}
	return before + begin + content + end + after
}

// TestMetricsExist: alerts and dashboard ask for metrics that a worker has.
func TestMetricsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]string{}
	for _, a := range All() {
		asked[a.Name] = a.Expr
	}
	for _, row := range Dashboard() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				asked[p.Title+": "+q.Legend] = q.Expr
			}
		}
	}
	for who, expr := range asked {
		for _, name := range regexp.MustCompile(`spotworker_[a-z_]+`).FindAllString(expr, -1) {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !strings.Contains(string(text), "\n- `"+name+"`") && !strings.Contains(string(text), "\n- `"+name+"{") {
				t.Errorf("%s asks for %s, which is not in the table of metrics", who, name)
			}
		}
	}
}
