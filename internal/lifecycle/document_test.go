package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	generatedBegin = "<!-- generated: begin (go test ./internal/lifecycle -update) -->\n"
	generatedEnd   = "<!-- generated: end -->\n"
)

// TestDocument holds the drawing of docs/evictions.md and table.md to the rules. To
// write both again after a change of the rules:
//
//	go test ./internal/lifecycle -update
func TestDocument(t *testing.T) {
	checkDocument(t, filepath.Join("..", "..", "docs", "evictions.md"), "\n```mermaid\n"+diagram()+"```\n\n")
	checkDocument(t, "table.md", "\n"+table()+"\n")
}

// checkDocument checks, or with -update writes, the generated part of a document.
func checkDocument(t *testing.T, path, part string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := regenerate(string(text), part)
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

// regenerate returns text with the part between the markers.
func regenerate(text, part string) (string, error) {
	before, rest, found := strings.Cut(text, generatedBegin)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(generatedBegin))
	}
	_, after, found := strings.Cut(rest, generatedEnd)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(generatedEnd))
	}
	return before + generatedBegin + part + generatedEnd + after, nil
}

// diagram returns the table as a Mermaid state diagram. Rules that lead from
// one state to the same other share an arrow.
func diagram() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	fmt.Fprintf(&b, "    [*] --> %s\n", Start)
	for _, from := range States() {
		for _, to := range States() {
			if label := arrow(from, to); label != "" {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", from, to, label)
			}
		}
	}
	fmt.Fprintf(&b, "    %s --> [*]\n", Stopped)
	return b.String()
}

// arrow returns the text on the arrow between two states: one line for each
// rule, the event and its condition. It is empty where there is no rule.
func arrow(from, to State) string {
	var lines []string
	for _, r := range rules {
		if r.from == from && r.to == to {
			lines = append(lines, r.on.String()+bracketed(r.condition()))
		}
	}
	return strings.Join(lines, "<br/>")
}

// table returns the table in Markdown, one row for each rule.
func table() string {
	var b strings.Builder
	b.WriteString("| State | Event | If | Next | Meaning |\n|---|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.from, r.on, r.condition(), r.to, r.meaning)
	}
	for _, s := range States() {
		fmt.Fprintf(&b, "| %s | %s | | refused | |\n", s, others(s))
	}
	return b.String()
}

// condition names the facts that r asks for.
func (r rule) condition() string {
	return describe(r.has, r.lacks)
}

// others lists the events that s refuses regardless of earlier events.
func others(s State) string {
	var names []string
	for _, e := range Events() {
		known := func(r rule) bool { return r.from == s && r.on == e }
		if !slices.ContainsFunc(rules, known) {
			names = append(names, e.String())
		}
	}
	return strings.Join(names, ", ")
}

// bracketed returns a condition as UML writes one, or nothing for none.
func bracketed(condition string) string {
	if condition == "" {
		return ""
	}
	return " [" + condition + "]"
}
