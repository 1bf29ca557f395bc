package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	camelWord   = regexp.MustCompile("`([a-z]+[A-Z][A-Za-z]+)(: [^`]*)?`")
	metadataKey = regexp.MustCompile(`metadata\.([a-z0-9]+)`)
	stateRow    = regexp.MustCompile(`(?m)^\| (any|Running|Stopped) \| (deploy|evict|restart) \|`)
	resultWord  = regexp.MustCompile(`\b(Running|Stopped|Deleted);`)
)

// document returns a file of docs/.
func document(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestDocumentNamesParameters: what docs/deploy.md writes as a parameter or a
// property is one.
func TestDocumentNamesParameters(t *testing.T) {
	var all strings.Builder
	for _, f := range committed(t) {
		all.WriteString(f.source)
	}
	words := camelWord.FindAllStringSubmatch(document(t, "deploy.md"), -1)
	const fewest = 25
	if len(words) < fewest {
		t.Errorf("docs/deploy.md names %d parameters, want at least %d", len(words), fewest)
	}
	for _, word := range words {
		if !regexp.MustCompile(`\b` + word[1] + `\b`).MatchString(all.String()) {
			t.Errorf("docs/deploy.md names %s, which is nowhere in infra/bicep", word[1])
		}
	}
}

// TestDocumentReadsMetadata: the keys that commands in docs/deploy.md ask for
// are in docs/FORMATS.md.
func TestDocumentReadsMetadata(t *testing.T) {
	formats := document(t, "FORMATS.md")
	for _, key := range metadataKey.FindAllStringSubmatch(document(t, "deploy.md"), -1) {
		if !strings.Contains(formats, "| `"+key[1]+"` |") {
			t.Errorf("docs/deploy.md asks for metadata.%s, which docs/FORMATS.md does not list", key[1])
		}
	}
}

// TestDocumentHasEveryState: the table of Spot VM states has the nine rows of
// the guide, each with a state to end in and something in every column.
func TestDocumentHasEveryState(t *testing.T) {
	const rows, columns = 9, 8
	var got int
	for line := range strings.Lines(document(t, "deploy.md")) {
		if !stateRow.MatchString(line) {
			continue
		}
		got++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != columns {
			t.Errorf("%d columns, want %d, in the row %s", len(cells), columns, line)
		}
		for _, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("an empty cell in the row %s", line)
			}
		}
		if !resultWord.MatchString(line) {
			t.Errorf("no next state in the row %s", line)
		}
	}
	if got != rows {
		t.Errorf("%d rows of Spot VM states, want %d", got, rows)
	}
}

// TestDocumentCountsAlerts: the pages count the alerts that need no metrics.
func TestDocumentCountsAlerts(t *testing.T) {
	n := 0
	for _, f := range committed(t) {
		for _, r := range f.Resources {
			if r.Type == "Microsoft.Insights/scheduledQueryRules" || r.Type == "Microsoft.Insights/activityLogAlerts" {
				n++
			}
		}
	}
	if n != 2 {
		t.Errorf("infra/bicep has %d alerts that need no metrics, the pages count 2", n)
	}
	for page, want := range map[string]string{
		"deploy.md": "Two alerts need no metrics", "operating.md": "that collects no metrics has two alerts",
	} {
		if !strings.Contains(document(t, page), want) {
			t.Errorf("docs/%s does not say %q", page, want)
		}
	}
}

// TestDocumentNamesTheGallery: the gallery's name ends in a hash, so no command has it
// written out.
func TestDocumentNamesTheGallery(t *testing.T) {
	if strings.Contains(document(t, "deploy.md"), "--gallery-name spotworker") {
		t.Error("docs/deploy.md names the gallery spotworker, which has a hash behind its name")
	}
}
