//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// figure is a column of a table. Sides are compared by it if ratio is set.
type figure struct {
	name, format string
	ratio        bool
}

// side is one of the programs that are compared. measure returns its figures, in the order of the
// table's columns.
type side struct {
	name    string
	measure func(ctx context.Context) ([]float64, error)
}

// workers are the sides that are our worker: of this revision, and of --baseline if it is given.
func (b *bench) workers(measure func(ctx context.Context, binary string) ([]float64, error)) []side {
	all := []side{{"worker", func(ctx context.Context) ([]float64, error) { return measure(ctx, b.worker) }}}
	if b.baseline != "" {
		all = append(all, side{"worker of " + b.Baseline, func(ctx context.Context) ([]float64, error) { return measure(ctx, b.baseline) }})
	}
	return all
}

// table is a table of measurements.
type table struct {
	figures []figure
	rows    [][]string
}

// compare measures all sides, round after round, and adds a row for each of them and one for the
// ratio of the first side and each other. where is what the sides have in common.
func (b *bench) compare(ctx context.Context, t *table, where string, sides ...side) error {
	all := make([][]values, len(sides))
	for round := range b.Rounds {
		for i := range sides {
			at := (i + round) % len(sides) // no side always comes after the same one
			figures, err := sides[at].measure(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", where, sides[at].name, err)
			}
			if all[at] == nil {
				all[at] = make([]values, len(figures))
			}
			said := []string{}
			for column, v := range figures {
				all[at][column] = append(all[at][column], v)
				said = append(said, fmt.Sprintf(t.figures[column].format+" "+t.figures[column].name, v))
			}
			b.report("%s, %s, round %d: %s", where, sides[at].name, round+1, strings.Join(said, "; "))
		}
	}
	for i, s := range sides {
		t.add(where, s.name, func(column int) string { return all[i][column].show(t.figures[column].format) })
	}
	for i, s := range sides[1:] {
		t.add(where, sides[0].name+" ÷ "+s.name, func(column int) string {
			if !t.figures[column].ratio {
				return ""
			}
			return all[0][column].over(all[i+1][column]).show("%.2f")
		})
	}
	return nil
}

func (t *table) add(where, name string, cell func(column int) string) {
	row := []string{where, name}
	for column := range t.figures {
		row = append(row, cell(column))
	}
	t.rows = append(t.rows, row)
}

// print prints a table in Markdown.
func (b *bench) print(t *table, title, about string) {
	head := []string{"", ""}
	for _, f := range t.figures {
		head = append(head, f.name)
	}
	b.say("## %s\n\n%s\n", title, about)
	b.say("| %s |\n|%s", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range t.rows {
		b.say("| %s |", strings.Join(row, " | "))
	}
	b.say("")
}

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
