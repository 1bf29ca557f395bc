package main

import (
	"fmt"
	"slices"
	"strings"
)

// values are the measurements of one thing, one for each round.
type values []float64

// median returns the value in the middle, 0 without any.
func (v values) median() float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// over returns the ratios of v and other, round by round, since the two were measured
// one after the other.
func (v values) over(other values) values {
	var ratios values
	for i := range min(len(v), len(other)) {
		if other[i] > 0 {
			ratios = append(ratios, v[i]/other[i])
		}
	}
	return ratios
}

// show prints the median and, where there are several values, the lowest and highest.
func (v values) show(format string) string {
	switch len(v) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf(format, v[0])
	}
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", v.median(), slices.Min(v), slices.Max(v))
}

// grid is a table in Markdown.
type grid struct {
	rows [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// String implements [fmt.Stringer]. The first row is the head.
func (g *grid) String() string {
	var text strings.Builder
	for i, row := range g.rows {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			text.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return text.String()
}
