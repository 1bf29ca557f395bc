package table

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func example() *Table {
	t := New(Column{Name: "JOB", Least: 6}, Column{Name: "KIND", Drop: 2}, Column{Name: "LEFT", Right: true, Drop: 1},
		Column{Name: "REASON", Least: 8, Drop: 3})
	t.Add("report-2026-11", "digest", "4m", "no such blob: data/2026")
	t.Add("b\x1b[31m", "", "12h")
	return t
}

func TestLines(t *testing.T) {
	for _, row := range []struct {
		name  string
		width int
		want  string
	}{
		{"no limit", 0, `
JOB             KIND    LEFT  REASON
report-2026-11  digest    4m  no such blob: data/2026
b�[31m          -        12h  -`},
		{"long cells are cut, the widest first", 44, `
JOB             KIND    LEFT  REASON
report-2026-11  digest    4m  no such blob:…
b�[31m          -        12h  -`},
		{"the column that matters least is left out", 26, `
JOB           KIND    LEFT
report-2026…  digest    4m
b�[31m        -        12h`},
		{"then the next", 16, `
JOB         LEFT
report-20…    4m
b�[31m       12h`},
		{"the rest is cut no further than allowed", 3, `
JOB
repor…
b�[31m`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := "\n" + strings.Join(example().Lines(row.width), "\n")
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("width %d (-want +got):\n%s", row.width, diff)
			}
		})
	}
}

// TestMiddle: of a long error the end is kept.
func TestMiddle(t *testing.T) {
	t1 := New(Column{Name: "JOB"}, Column{Name: "REASON", Least: 4, Middle: true})
	t1.Add("a", "exited with 1: ValueError")
	for width, want := range map[int]string{40: "a    exited with 1: ValueError", 20: "a    exited…lueError", 3: "a    ex…ror"} {
		if got := t1.Lines(width)[1]; got != want {
			t.Errorf("width %d: %q, want %q", width, got, want)
		}
	}
}

// No line is wider than the terminal, down to the width of the first column.
func TestLinesFit(t *testing.T) {
	for width := 6; width < 80; width++ {
		for _, line := range example().Lines(width) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("width %d: a line has %d columns: %s", width, n, line)
			}
		}
	}
}

func TestEmpty(t *testing.T) {
	if got := New(Column{Name: "JOB"}).Lines(10); len(got) != 1 || got[0] != "JOB" {
		t.Errorf("Lines = %q, want the heading alone", got)
	}
}

func TestCut(t *testing.T) {
	for _, row := range []struct {
		text  string
		width int
		want  string
	}{{"über", 4, "über"}, {"überall", 4, "übe…"}, {"überall", 0, "überall"}, {"ab", 1, "…"}} {
		if got := Cut(row.text, row.width); got != row.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", row.text, row.width, got, row.want)
		}
	}
}
