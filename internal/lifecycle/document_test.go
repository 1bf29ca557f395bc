package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	generatedBegin = "<!-- generated: begin (go test ./internal/lifecycle -update) -->\n"
	generatedEnd   = "<!-- generated: end -->\n"
)

// TestDocument holds docs/lifecycle.md to the table. To write the drawing and
// the table anew after a change of the rules:
//
//	go test ./internal/lifecycle -update
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "lifecycle.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := regenerate(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if want == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is stale; run: go test ./internal/lifecycle -update\n(-want +got):\n%s",
		path, cmp.Diff(want, string(text)))
}

// regenerate returns text with what stands between the markers written anew.
func regenerate(text string) (string, error) {
	before, rest, found := strings.Cut(text, generatedBegin)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(generatedBegin))
	}
	_, after, found := strings.Cut(rest, generatedEnd)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(generatedEnd))
	}
	return before + generatedBegin + "\n```mermaid\n" + Diagram() + "```\n\n" + Table() + "\n" +
		generatedEnd + after, nil
}

func TestRegenerate(t *testing.T) {
	stale := "above\n" + generatedBegin + "old\n" + generatedEnd + "below\n"
	fresh, err := regenerate(stale)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fresh, "old") {
		t.Errorf("regenerate kept the old text:\n%s", fresh)
	}
	for _, want := range []string{"above\n", "below\n", Diagram(), Table()} {
		if !strings.Contains(fresh, want) {
			t.Errorf("regenerate lost %q", want)
		}
	}
	if again, err := regenerate(fresh); err != nil || again != fresh {
		t.Errorf("regenerate twice changed the text (error %v)", err)
	}
	for _, broken := range []string{"", generatedBegin, generatedEnd} {
		if _, err := regenerate(broken); err == nil {
			t.Errorf("regenerate(%q) without its markers = nil error", broken)
		}
	}
}

// TestDiagramHasEveryRule counts what Diagram and Table show, so that a rule
// that no arrow carries is noticed.
func TestDiagramHasEveryRule(t *testing.T) {
	labels := 0
	for line := range strings.Lines(Diagram()) {
		if _, label, found := strings.Cut(line, ": "); found {
			labels += 1 + strings.Count(label, "<br/>")
		}
	}
	if labels != len(rules) {
		t.Errorf("Diagram() has %d labels, want one for each of %d rules", labels, len(rules))
	}
	if got, want := strings.Count(Table(), "\n"), 2+len(rules)+len(States()); got != want {
		t.Errorf("Table() has %d lines, want %d", got, want)
	}
}
