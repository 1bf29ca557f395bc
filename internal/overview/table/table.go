// Package table lays out rows in columns that fit a terminal.
//
// A terminal that is too narrow first loses the columns that matter least, then the
// ends of long cells. Output that is no terminal (width 0) has all of it.
package table

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// Column is a column of a [Table].
type Column struct {
	// Name is its heading.
	Name string

	// Drop says when the column is left out of a narrow terminal: columns with higher
	// numbers first. A column with 0 is never left out.
	Drop int

	// Least is the width to which its cells may be cut; 0 for cells that are never cut.
	Least int

	// Right aligns its cells to the right.
	Right bool

	// Middle cuts the middle of long cells, as of errors, whose end says why.
	Middle bool
}

// Table is a table with a heading. The zero value of its rows is an empty table.
type Table struct {
	columns []Column
	rows    [][]string
}

// New returns a table without rows.
func New(columns ...Column) *Table { return &Table{columns: columns} }

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Add adds a row, with a cell for each column. Cells may be of untrusted origin: what
// cannot be printed is replaced. An empty cell becomes "-".
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		if row[i] = "-"; i < len(cells) && cells[i] != "" {
			row[i] = plaintext.Line(cells[i])
		}
	}
	t.rows = append(t.rows, row)
}

// gap is between two columns.
const gap = "  "

// Lines returns the heading and the rows, none of them longer than width if the columns
// that are never left out allow it. Width 0 is no limit.
func (t *Table) Lines(width int) []string {
	chosen, widths := t.fit(width)
	lines := []string{line(t.headings(), t.columns, chosen, widths)}
	for _, row := range t.rows {
		lines = append(lines, line(row, t.columns, chosen, widths))
	}
	return lines
}

func (t *Table) headings() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.Name
	}
	return names
}

// fit returns the indexes of the columns to show, and the width of every column.
func (t *Table) fit(width int) (chosen, widths []int) {
	for i, name := range t.headings() {
		widest := utf8.RuneCountInString(name)
		for _, row := range t.rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		widths, chosen = append(widths, widest), append(chosen, i)
	}
	if width <= 0 {
		return chosen, widths
	}
	for t.total(chosen, t.least(widths)) > width {
		drop := slices.MaxFunc(chosen, func(a, b int) int { return t.columns[a].Drop - t.columns[b].Drop })
		if t.columns[drop].Drop == 0 {
			break
		}
		chosen = slices.DeleteFunc(chosen, func(i int) bool { return i == drop })
	}
	return chosen, t.shrink(chosen, widths, width)
}

// least returns the widths that columns can be cut to.
func (t *Table) least(widths []int) []int {
	least := slices.Clone(widths)
	for i, c := range t.columns {
		if c.Least > 0 {
			least[i] = min(least[i], max(c.Least, utf8.RuneCountInString(c.Name)))
		}
	}
	return least
}

// shrink cuts the widest of the columns that may be cut until all fit.
func (t *Table) shrink(chosen, widths []int, width int) []int {
	widths, least := slices.Clone(widths), t.least(widths)
	for over := t.total(chosen, widths) - width; over > 0; over-- {
		widest := -1
		for _, i := range chosen {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// total returns the length of a line.
func (t *Table) total(chosen, widths []int) int {
	sum := len(gap) * (len(chosen) - 1)
	for _, i := range chosen {
		sum += widths[i]
	}
	return sum
}

func line(cells []string, columns []Column, chosen, widths []int) string {
	var b strings.Builder
	for n, i := range chosen {
		cut := Cut
		if columns[i].Middle && widths[i] > 2 {
			cut = cutMiddle
		}
		cell := cut(cells[i], widths[i])
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case columns[i].Right:
			b.WriteString(space + cell)
		default:
			b.WriteString(cell + space)
		}
		if n < len(chosen)-1 {
			b.WriteString(gap)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Cut shortens a text to a number of columns, one for each character. 0 is no limit.
func Cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// cutMiddle is Cut, and leaves out the middle of the text.
func cutMiddle(text string, width int) string {
	long := []rune(text)
	if len(long) <= width {
		return text
	}
	return string(long[:width/2-1]) + "…" + string(long[len(long)-(width-width/2):])
}
