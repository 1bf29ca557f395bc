package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// idioms are expressions of this project's past that name nothing a reader could
// search for, and what to write in their place. They are looked for in lower-case
// text whose identifiers are split into words: "in hand" also finds inHand.
var idioms = []struct{ expressions, instead string }{
	{"become of|becomes of|became of|come of|comes of|came of", "outcome, result"},
	{"go on|goes on|going on|gone on|went on", "continue, resume"},
	{"in hand", "active, running, in flight"},
	{"whoever", "the caller, the owner"},
	{"anew", "again"},
	{"mend|mends|mended|mending|unmendable", "fix, recover"},
	{"take note|takes note|took note|taken note|taking note", "record"},
	{"by itself|by themselves", "automatically, when the visibility timeout expires"},
	{"say so|says so|said so|saying so", "log, report"},
	{"put down", "record"},
	{"give no answer|gives no answer|gave no answer|given no answer", "time out, be unavailable"},
	{"let go|lets go|letting go", "release"},
	{"to be had", "available"},
	{"mishap|mishaps", "fault"},
	{"witness|witnesses|witnessed", "oracle, history, recorder"},
	{"weather|dignity", "what it tests"},
	{"silent end|silent ends", "unclean exit, crash"},
	{"give way|gives way|gave way|giving way", "requeue, defer"},
	{"keep no more", "stop renewing"},
	{"until asked", "notify stop"},
	{"outlive readers", "ignore SIGPIPE"},
	{"warden|wardens", "controller"},
	{"overstay|overstays", "cannot finish"},
	{"at work", "running"},
	{"for good", "permanently"},
	{"once more", "again"},
	{"nobody", "no worker, no caller, no one"},
	{"is told|are told", "receives, is notified"},
	{"its business", "may, is responsible for"},
	{"meanwhile", "until then, during that time: name the time"},
	{"in the end", "finally"},
	{"not begun", "not started"},
	{"at hand", "available"},
}

// allowed are the places where such an expression is the right one: a file, and a
// text on the line unless all of the file may have it.
var allowed = []struct{ path, text, reason string }{
	{"internal/test/architecture/language_test.go", "", "the list itself"},
	{"internal/host/sandbox/range.go", "65534", "the name of a system user"},
	{"internal/host/sandbox/users_test.go", "65535", "the name of a system user"},
	{"internal/host/sandbox/users_test.go", "65534", "the name of a system user"},
}

var (
	// languageFiles are the files that people read.
	languageFiles = regexp.MustCompile(`(\.(go|md|sh|bicep|service|txtar)|(^|/)Makefile|^\.ci/run)$`)

	// unread are the names of directories without text of ours.
	unread = []string{".git", ".tools", "bin", "dist", "fuzz", "node_modules", "out", "rapid"}

	// boundary is where the next word of an identifier begins. Punctuation ends an
	// expression, except for hyphens: "go on-demand".
	boundary    = regexp.MustCompile(`([\p{Ll}\d])(\p{Lu})`)
	punctuation = regexp.MustCompile(`[^\w\s-]+`)
	space       = regexp.MustCompile(`\s+`)
)

// idiomsIn describes the idioms in a text.
func idiomsIn(text string) (found []string) {
	words := punctuation.ReplaceAllString(strings.ToLower(boundary.ReplaceAllString(text, "$1 $2")), " . ")
	words = " " + space.ReplaceAllString(words, " ") + " "
	for _, i := range idioms {
		for e := range strings.SplitSeq(i.expressions, "|") {
			if strings.Contains(words, " "+e+" ") {
				found = append(found, fmt.Sprintf("%q; write: %s", e, i.instead))
			}
		}
	}
	return found
}

// checkLanguage returns the idioms in the files of fsys, except where they are allowed.
func checkLanguage(fsys fs.FS) (found []violation, err error) {
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(unread, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !languageFiles.MatchString(name):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if len(idiomsIn(string(text))) == 0 {
			return nil
		}
		for n, line := range strings.Split(string(text), "\n") {
			for _, what := range idiomsIn(line) {
				if !isAllowed(name, line) {
					found = append(found, violation{name, n + 1, "has " + what, "plain English", "a reader searches for the field's own words"})
				}
			}
		}
		return nil
	})
	return found, err
}

func isAllowed(name, line string) bool {
	for _, a := range allowed {
		if name == a.path && strings.Contains(line, a.text) {
			return true
		}
	}
	return false
}

// TestPlainEnglish finds expressions that this project used in place of the
// field's words, in code, scripts and documents.
func TestPlainEnglish(t *testing.T) {
	found, err := checkLanguage(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// TestIdiomsAreFound: in prose, in identifiers and at the end of a line, and not
// in what only looks like one.
func TestIdiomsAreFound(t *testing.T) {
	for _, line := range []string{"// It goes on.", "inHand := 1", "func (w *Worker) atWork() {", "what became of it", "the job is Mended",
		"for good"} {
		if len(idiomsIn(line)) == 0 {
			t.Errorf("%q: no idiom found", line)
		}
	}
	for _, line := range []string{"http.NoBody", "jobs go on-demand", "spotworker_jobs_in_hand", "recommend", "forgood", "ongoing",
		"TestIsGone, on real processes"} {
		if found := idiomsIn(line); len(found) != 0 {
			t.Errorf("%q: found %s", line, found)
		}
	}
}
