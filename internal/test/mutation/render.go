package mutation

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Environment variables of an instrumented program. Active is the number of the active
// mutant. Reached names a file that gets the numbers of all reached mutants.
const (
	Active  = "SPOTWORKER_MUTANT"
	Reached = "SPOTWORKER_MUTANTS_REACHED"
)

//go:embed helpers.go.txt
var helpersText string

// helpers returns the file that the package's mutants need in addition. count is above all
// numbers of mutants.
func helpers(name string, count int) string {
	return strings.NewReplacer("PACKAGE", name, "COUNT", strconv.Itoa(count), "ACTIVE", Active, "REACHED", Reached).Replace(helpersText)
}

// render returns the file's text with all mutants that are chosen, each behind a switch.
// Comments mark where the mutants are: see blame.
func (f *sourceFile) render(chosen func(*Mutant) bool) string {
	edits := slices.DeleteFunc(slices.Clone(f.edits), func(e edit) bool { return e.mutant.invalid || !chosen(e.mutant) })
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.kind, b.kind))
	})
	r := renderer{text: f.text, edits: edits}
	return r.between(0, len(f.text))
}

// renderer writes a file with its edits, which are sorted from the outside to the inside.
type renderer struct {
	text  string
	edits []edit
	next  int
}

// between returns the text from start to end with the edits in it.
func (r *renderer) between(start, end int) string {
	var out strings.Builder
	for r.next < len(r.edits) && r.edits[r.next].start < end {
		first := r.edits[r.next]
		out.WriteString(r.text[start:first.start])
		out.WriteString(r.site())
		start = first.end
	}
	out.WriteString(r.text[start:end])
	return out.String()
}

// site returns one place with all edits of it.
func (r *renderer) site() string {
	first := r.edits[r.next]
	at := r.next
	for r.follows(first) && r.edits[r.next].kind == first.kind {
		r.next++
	}
	edits := r.edits[at:r.next]
	var inner string
	if r.follows(first) {
		inner = r.site()
	} else {
		inner = r.between(first.start, first.end)
	}
	numbers := make([]string, len(edits))
	for i, e := range edits {
		numbers[i] = strconv.Itoa(e.mutant.ID)
	}
	return " /*<" + strings.Join(numbers, ",") + "*/" + combine(edits, inner) + "/*>*/"
}

// follows reports whether the next edit is at the same place.
func (r *renderer) follows(e edit) bool {
	return r.next < len(r.edits) && r.edits[r.next].start == e.start && r.edits[r.next].end == e.end
}

// combine puts the edits of a place behind switches.
func combine(edits []edit, inner string) string {
	var out strings.Builder
	switch edits[0].kind {
	case condition:
		for _, e := range edits {
			fmt.Fprintf(&out, "mutOn(%d) && (%s) || ", e.mutant.ID, marked(e))
		}
		for _, e := range edits {
			fmt.Fprintf(&out, "!mutOn(%d) && ", e.mutant.ID)
		}
		return "(" + out.String() + "(" + inner + "))"
	case statement:
		for _, e := range edits {
			fmt.Fprintf(&out, "if mutOn(%d) { %s } else ", e.mutant.ID, marked(e))
		}
		return out.String() + "{ " + inner + " }"
	case before:
		for _, e := range edits {
			fmt.Fprintf(&out, "if mutOn(%d) { %s }; ", e.mutant.ID, marked(e))
		}
		return out.String() + inner
	case wrap:
		for _, e := range edits {
			inner = fmt.Sprintf("/*<%d*/%s(%d, %s, %s)/*>*/", e.mutant.ID, e.text, e.mutant.ID, inner, e.args)
		}
		return inner
	}
	panic("an edit of no kind")
}

func marked(e edit) string { return fmt.Sprintf("/*<%d*/%s/*>*/", e.mutant.ID, e.text) }

var mark = regexp.MustCompile(`/\*<([0-9,]+)\*/|/\*>\*/`)

// blame returns the numbers of the mutants at the innermost place that has the offset. If no
// place has it, all mutants on its line are blamed: a wrapped number can make another one wrong.
func blame(text string, offset int) []int {
	var open []string
	for _, found := range mark.FindAllStringSubmatchIndex(text, -1) {
		if found[0] > offset {
			break
		}
		if found[2] < 0 {
			open = open[:len(open)-1]
		} else {
			open = append(open, text[found[2]:found[3]])
		}
	}
	if len(open) == 0 {
		start := strings.LastIndexByte(text[:offset], '\n') + 1
		for _, found := range mark.FindAllStringSubmatch(strings.SplitN(text[start:], "\n", 2)[0], -1) {
			if found[1] != "" {
				open = append(open, found[1])
			}
		}
	} else {
		open = open[len(open)-1:]
	}
	var numbers []int
	for text := range strings.SplitSeq(strings.Join(open, ","), ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// dropInvalid drops mutants that do not compile. It checks all at once, blames each problem
// on the mutants at its place, and repeats without them.
func (p *Package) dropInvalid() error {
	number([]*Package{p})
	for {
		texts := p.render(func(*Mutant) bool { return true }, len(p.Mutants)+1)
		fset, _, _, problems, err := p.check(texts)
		if err != nil {
			return fmt.Errorf("the code with its mutants: %w", err)
		}
		if len(problems) == 0 {
			break
		}
		for _, problem := range problems {
			at := fset.PositionFor(problem.Pos, false)
			file := slices.IndexFunc(p.files, func(f *sourceFile) bool { return f.path == at.Filename })
			if file < 0 {
				return fmt.Errorf("the code with its mutants: %w", problem)
			}
			numbers := blame(texts[file], at.Offset)
			if len(numbers) == 0 {
				return fmt.Errorf("the code with its mutants, outside of them: %w", problem)
			}
			for _, n := range numbers {
				p.Mutants[n-1].invalid = true
			}
		}
	}
	p.Mutants = slices.DeleteFunc(p.Mutants, func(m *Mutant) bool { return m.invalid })
	return nil
}

// render returns the texts of the package's files with mutants, and of the file with helpers.
func (p *Package) render(chosen func(*Mutant) bool, count int) []string {
	texts := make([]string, 0, len(p.files)+1)
	for _, file := range p.files {
		texts = append(texts, file.render(chosen))
	}
	return append(texts, helpers(p.Name, count))
}
