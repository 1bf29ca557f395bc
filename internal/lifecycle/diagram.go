package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// Diagram returns the table as a Mermaid state diagram. Rules that lead from
// one state to the same other share an arrow.
func Diagram() string {
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

// arrow returns what is written on the arrow between two states: one line for
// each rule, the event and its condition. It is empty where there is no rule.
func arrow(from, to State) string {
	var lines []string
	for _, r := range rules {
		if r.from == from && r.to == to {
			lines = append(lines, r.on.String()+bracketed(r.condition()))
		}
	}
	return strings.Join(lines, "<br/>")
}

// Table returns the table in Markdown, one row for each rule.
func Table() string {
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

// others lists the events that s refuses whatever happened before.
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
