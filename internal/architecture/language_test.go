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

// idiom is an expression of this project's past that names nothing a reader could
// search for, and what to write in its place.
type idiom struct {
	pattern *regexp.Regexp
	instead string
}

// idioms are matched in lower-case text whose identifiers are split into words, so
// that `in hand` also finds inHand.
var idioms = []idiom{
	{word(`(becomes?|became|comes?|came) of`), "outcome, result"},
	{word(`(go|goes|going|went) on`), "continue, resume"},
	{word(`in hand`), "active, running, in flight"},
	{word(`whoever`), "the caller, the owner"},
	{word(`anew`), "again"},
	{word(`(un)?mend(s|ed|ing|able)?`), "fix, recover"},
	{word(`(take|takes|took|taken|taking) note`), "record"},
	{word(`by itself|by themselves`), "automatically, when the visibility timeout expires"},
	{word(`(say|says|said|saying) so`), "log, report"},
	{word(`put down`), "record"},
	{word(`(give|gives|gave|given) no answer`), "time out, be unavailable"},
	{word(`lets? go|letting go`), "release"},
	{word(`to be had`), "available"},
	{word(`mishaps?`), "fault"},
	{word(`witness(es|ed)?`), "oracle, history, recorder"},
	{word(`weather`), "what it tests: faults, latency"},
	{word(`silent ends?`), "unclean exit, crash"},
	{word(`dignity`), "what it tests"},
	{word(`(give|gives|gave|giving) way`), "requeue, defer"},
	{word(`keep no more`), "stop renewing"},
	{word(`until asked`), "notify stop"},
	{word(`outlive readers`), "ignore SIGPIPE"},
	{word(`wardens?`), "controller"},
	{word(`overstays?`), "cannot finish"},
	{word(`at work`), "running"},
	{word(`for good`), "permanently"},
	{word(`once more`), "again"},
	{word(`nobody`), "no worker, no caller, no one"},
	{word(`(is|are) told`), "receives, is notified"},
	{word(`its business`), "may, is responsible for"},
	{word(`meanwhile`), "until then, during that time: name the time"},
	{word(`in the end`), "finally"},
	{word(`not begun`), "not started"},
	{word(`at hand`), "available"},
}

// word matches an expression of whole words. A hyphen behind it makes another word:
// "go on-demand".
func word(expression string) *regexp.Regexp {
	return regexp.MustCompile(`\b(` + expression + `)(?:[^-\w]|$)`)
}

// allowed are the places where such an expression is the right one: a file, and a
// text on the line unless all of the file may have it.
var allowed = []struct{ path, text, reason string }{
	{"internal/architecture/language_test.go", "", "the list itself"},
}

// exempt are the files and directories that are not rewritten yet. The list only
// gets shorter.
var exempt = []string{
	"docs", "examples", "infra", "job", "vmapp",
}

var (
	// languageFiles are the files that people read.
	languageFiles = regexp.MustCompile(`(\.(go|md|sh|bicep|service|txtar)|(^|/)Makefile|^\.ci/run)$`)

	// unread are the names of directories without text of ours.
	unread = []string{".git", ".tools", "bin", "dist", "fuzz", "node_modules", "out", "rapid"}

	// boundary is where the next word of an identifier begins.
	boundary = regexp.MustCompile(`([\p{Ll}\d])(\p{Lu})`)
)

// idiomsIn describes the idioms in a line.
func idiomsIn(line string) (found []string) {
	line = strings.ToLower(boundary.ReplaceAllString(line, "$1 $2"))
	for _, i := range idioms {
		if text := i.pattern.FindStringSubmatch(line); text != nil {
			found = append(found, fmt.Sprintf("%q; write: %s", text[1], i.instead))
		}
	}
	return found
}

// checkLanguage returns the idioms in the files of fsys that are not exempt, and
// which entries of exempt have any.
func checkLanguage(fsys fs.FS) (found []violation, inExempt map[string]bool, err error) {
	inExempt = map[string]bool{}
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
		exemption := exemptionOf(name)
		for n, line := range strings.Split(string(text), "\n") {
			for _, what := range idiomsIn(line) {
				switch {
				case isAllowed(name, line):
				case exemption != "":
					inExempt[exemption] = true
				default:
					found = append(found, violation{name, n + 1, "has " + what, "plain English", "a reader searches for the field's own words"})
				}
			}
		}
		return nil
	})
	return found, inExempt, err
}

// exemptionOf returns the entry of exempt that covers a file, or "".
func exemptionOf(name string) string {
	for _, e := range exempt {
		if name == e || strings.HasPrefix(name, e+"/") {
			return e
		}
	}
	return ""
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
	found, inExempt, err := checkLanguage(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	for _, e := range exempt {
		if !inExempt[e] {
			t.Errorf("%s has none of the idioms any more: take it off the list of exempt places", e)
		}
	}
}

// TestIdiomsAreFound: in prose, in identifiers and at the end of a line, and not
// in what only looks like one.
func TestIdiomsAreFound(t *testing.T) {
	for _, line := range []string{"// It goes on.", "inHand := 1", "func (w *Worker) atWork() {", "what became of it", "the job is Mended", "for good"} {
		if len(idiomsIn(line)) == 0 {
			t.Errorf("%q: no idiom found", line)
		}
	}
	for _, line := range []string{"http.NoBody", "jobs go on-demand", "spotworker_jobs_in_hand", "recommend", "forgood", "ongoing"} {
		if found := idiomsIn(line); len(found) != 0 {
			t.Errorf("%q: found %s", line, found)
		}
	}
}
