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
