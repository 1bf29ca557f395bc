package architecture

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Budgets are the most clauses without a noun for each 10,000 words. Lower them
// when the text gets better.
const (
	docsBudget     = 3
	commentsBudget = 3
)

// constructions are forms of a clause that has a pronoun in the place of a noun,
// so that the reader has to look for the noun: "that of the worker", "the ones
// with a state", "what the record has". Repeat the noun: "the worker's claim",
// "jobs with a state", "the record's fields".
var constructions = []struct {
	name string
	form *regexp.Regexp
}{
	{"that of", regexp.MustCompile(`\b(that|those) of\b`)},
	{"those who", regexp.MustCompile(`\bthose (that|which|who|whose|with|without|in|on|for|from)\b`)},
	{"of which", regexp.MustCompile(`\bof (which|whom|whose)\b`)},
	{"one that", regexp.MustCompile(`\b(the )?ones? (that|which|who|whose|with|without)\b`)},
	{"what it", regexp.MustCompile(`\b((is|are|was|were|than|as|of|on|from|with|for|by|in|at|after|before) what|` +
		`what (a|an|the|this|that|these|those|each|every|no|one|another|other|any|some|all|only|` +
		`i|it|its|he|we|you|they|their|our|my|` +
		`is|are|was|were|be|has|have|had|do|does|did|can|could|may|must|might|will|would|should))\b`)},
	{"whatever", regexp.MustCompile(`\b(who|what|which)(so)?ever\b`)},
}

var (
	question  = regexp.MustCompile(`[^.:;?!|]*\?`)
	quoted    = regexp.MustCompile("`[^`]*`|\"[^\"]*\"")
	reference = regexp.MustCompile(`\]\([^)\s]*\)`)
	word      = regexp.MustCompile(`[\pL\pN]\S*`)
)

// prose is the text of one file that people read, and its figures.
type prose struct {
	file   string
	words  int
	clause []string // the clauses without a noun, by construction
}

// measure counts words and clauses without a noun. Code, quotations, addresses of
// links and questions do not count.
func measure(file, text string) prose {
	text = quoted.ReplaceAllString(reference.ReplaceAllString(text, "]"), "x")
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	p := prose{file: file, words: len(word.FindAllString(text, -1))}
	text = question.ReplaceAllString(text, ".")
	for _, c := range constructions {
		for _, at := range c.form.FindAllStringIndex(text, -1) {
			p.clause = append(p.clause, text[at[0]:min(len(text), at[1]+30)])
		}
	}
	return p
}

// perWords is the number of clauses for each 10,000 words.
func perWords(clauses, words int) int { return (10_000*clauses + words/2) / max(words, 1) }

// documentText returns a document without its code and its headings, which often
// are questions without the mark.
func documentText(text string) string {
	var kept strings.Builder
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		} else if !code && !strings.HasPrefix(line, "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// commentText returns the comments of a Go file without directives, code and headings.
func commentText(file *ast.File) string {
	var kept strings.Builder
	for _, group := range file.Comments {
		for line := range strings.Lines(group.Text()) {
			if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "# ") {
				kept.WriteString(line)
			}
		}
		kept.WriteString(".\n")
	}
	return kept.String()
}

// readProse returns the documents and the comments of the module.
func readProse(root fs.FS) (documents, comments []prose, err error) {
	positions := token.NewFileSet()
	err = walkFiles(root, func(name string) error {
		switch path.Ext(name) {
		case ".md":
			text, err := fs.ReadFile(root, name)
			if name == "README.md" || path.Dir(name) == "docs" {
				documents = append(documents, measure(name, documentText(string(text))))
			}
			return err
		case ".go":
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			comments = append(comments, measure(name, commentText(file)))
		}
		return nil
	})
	return documents, comments, err
}

// TestClausesHaveNouns holds documents and comments to a budget of clauses without
// a noun. If the test fails, it lists the files with most of them.
func TestClausesHaveNouns(t *testing.T) {
	documents, comments, err := readProse(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []struct {
		name   string
		texts  []prose
		budget int
	}{{"README.md and docs", documents, docsBudget}, {"comments", comments, commentsBudget}} {
		clauses, words := 0, 0
		for _, p := range kind.texts {
			clauses += len(p.clause)
			words += p.words
		}
		if words == 0 {
			t.Fatalf("%s: no words found", kind.name)
		}
		density := perWords(clauses, words)
		t.Logf("%s: %d clauses without a noun for each 10,000 words (%d of %d words)", kind.name, density, clauses, words)
		if density <= kind.budget {
			continue
		}
		t.Errorf("%s: %d clauses without a noun for each 10,000 words, want at most %d: repeat the noun", kind.name, density, kind.budget)
		slices.SortFunc(kind.texts, func(a, b prose) int { return cmp.Compare(len(b.clause), len(a.clause)) })
		for _, p := range kind.texts[:min(len(kind.texts), 10)] {
			t.Logf("%s: %d, %d for each 10,000 words\n\t%s", p.file, len(p.clause), perWords(len(p.clause), p.words),
				strings.Join(p.clause, "\n\t"))
		}
	}
}

// TestMeasure: each construction is found across the end of a line, and code,
// quotations, questions and clauses with a noun are left alone.
func TestMeasure(t *testing.T) {
	for _, text := range []string{"the state is that\nof the worker", "those who wait", "jobs, of which none ends", "The ones with a state",
		"it saves what the job reported", "this is what remains", "whoever owns it"} {
		if len(measure("", text).clause) == 0 {
			t.Errorf("%q: no clause found", text)
		}
	}
	for _, text := range []string{"What is a lease? It ends.", "the key `what a job is` counts", `it prints "what the job did"`,
		"one worker of ten", "the worker that owns the job", "one of the workers", "see [the list](what.md)", "What to do", "what-if"} {
		if found := measure("", text).clause; len(found) != 0 {
			t.Errorf("%q: found %q", text, found)
		}
	}
	if p := measure("", "one two `three four` | five --- 6."); p.words != 5 {
		t.Errorf("words = %d, want 5", p.words)
	}
	if got := perWords(3, 2000); got != 15 {
		t.Errorf("perWords(3, 2000) = %d, want 15", got)
	}
}
