package scripts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tracing makes bash write each command that it runs to its file 3, with the file and line of
// the command.
const tracing = "PS4='+ ${BASH_SOURCE}:${LINENO}: ' BASH_XTRACEFD=3\nset -x\n"

// executed are the commands that bash ran in all tests, by file and line: whether one ran,
// and whether it was fail.
type executed struct {
	mu    sync.Mutex
	lines map[string]bool
}

var traces = executed{lines: map[string]bool{}}

var traced = regexp.MustCompile(`(?m)^\++ (?:\S*/)?(tools/deploy[a-z-]*\.sh|deploy[a-z-]*\.sh):(\d+): (fail\b)?`)

// file returns a file for the trace of one script.
func (*executed) file(t *testing.T) *os.File {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "trace")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// read adds a trace.
func (e *executed) read(t *testing.T, file *os.File) {
	t.Helper()
	text, err := os.ReadFile(file.Name())
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range traced.FindAllSubmatch(text, -1) {
		key := filepath.Base(string(m[1])) + ":" + string(m[2])
		e.lines[key] = e.lines[key] || len(m[3]) > 0
	}
}

var (
	// Lines without a command: comments, keywords, patterns, closing words.
	noCommand = regexp.MustCompile(`^\s*($|#|;;$|(if|elif|while|until|for|case) |(then|else|fi|do|done|esac|\}|\{)(\s|$|;)|.*\) ;;$|` +
		`[^ (]+( \| [^ (]+)*\)$|"readEnv|local [\w ]+$|\w+\(\) \{$)`)
	continued = regexp.MustCompile(`(\\|\|\||&&|\||\()$|^\w+=\([^)]*$`)
	failing   = regexp.MustCompile(`(^|\s)fail "`)
	awkBegins = regexp.MustCompile(`^[^#]*\bawk\b[^']*'([^']*'[^']*')*[^']*$`)
)

// untested returns the commands of the scripts that no test ran, as file:line: command, and how
// many commands there are. A command of several lines ran if bash reported any of them; a
// call of fail counts for itself.
func (e *executed) untested() (list []string, commands int) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "tools", "deploy*.sh"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return []string{err.Error()}, 0
		}
		first, ran, inside, quoted := "", false, false, false
		end := func() {
			if first != "" && !ran {
				list = append(list, first)
			}
			first = ""
		}
		for n, line := range strings.Split(string(text), "\n") {
			words, where := strings.TrimSpace(line), fmt.Sprintf("%s:%d", filepath.Base(file), n+1)
			failed, here := e.lines[where]
			comment, fails := strings.HasPrefix(words, "#"), failing.MatchString(line)
			if !comment && fails && !failed {
				list = append(list, where+": "+words)
			}
			if !inside && !quoted {
				end()
				if !noCommand.MatchString(line) {
					first, ran = where+": "+words, false
					commands++
				}
			}
			ran = ran || here
			inside = !comment && (continued.MatchString(words) || inside && strings.HasPrefix(words, "--")) && !strings.HasSuffix(words, "{")
			quoted = awkBegins.MatchString(line) || quoted && !strings.Contains(line, "}'")
		}
		end()
	}
	return slices.Compact(slices.Sorted(slices.Values(list))), commands
}

// report prints the commands that no test ran, and returns the exit status of the tests.
func (e *executed) report() int {
	list, commands := e.untested()
	for _, command := range list {
		fmt.Printf("no test runs tools/%s\n", command)
	}
	const fewest = 250
	if commands < fewest {
		fmt.Printf("%d commands found in the scripts, want at least %d\n", commands, fewest)
	}
	if len(list) > 0 || commands < fewest {
		return 1
	}
	return 0
}

// wholeRun reports whether no flag chose some of the tests.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}
