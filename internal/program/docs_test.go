//go:build unix

package program

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

// manual is the page for the authors of programs.
func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/process.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns what stands below a heading.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/process.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// TestManualNamesAll: the manual has a row for every variable and every setting,
// and for no other.
func TestManualNamesAll(t *testing.T) {
	text := manual(t)
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z_]+)` \\|")
	for heading, want := range map[string][]string{"Environment": contract, "The kinds file": settingNames()} {
		var got []string
		for _, found := range row.FindAllStringSubmatch(section(t, text, heading), -1) {
			got = append(got, found[1])
		}
		want = slices.Sorted(slices.Values(want))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("section %q names %q, want %q", heading, got, want)
		}
	}
	variable := regexp.MustCompile("`([A-Z_]+)`(,| and| as)")
	passed := variable.FindAllStringSubmatch(regexp.MustCompile(`A program also finds .* as the worker`).FindString(text), -1)
	for _, name := range base {
		if !slices.ContainsFunc(passed, func(found []string) bool { return found[1] == name }) {
			t.Errorf("the manual does not say that %s is passed on", name)
		}
	}
}

// TestManualsPrograms runs the programs that the manual shows, evicts them after
// their first checkpoints, and wants the right result.
func TestManualsPrograms(t *testing.T) {
	for _, row := range []struct {
		language, program, payload, want string
	}{
		{"python", "python3", "[" + strings.Repeat("1,", 2_000) + "1]", "2001"},
		{"sh", "sh", strings.Repeat("abc\n", 150), strings.Repeat("ABC\n", 150)},
	} {
		t.Run(row.language, func(t *testing.T) {
			program := need.Command(t, row.program)
			code := documentedCode(t, row.language)
			script := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(script, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			b, saved := setup(t), (*job.Progress)(nil)
			k := Kind{Name: "test", Command: []string{program, script}}
			first := b.begin(k, row.payload, saved)
			b.until("a checkpoint", func() bool { return first.Latest() != nil })
			first.stop(job.Evicted, 10*time.Second)
			first.wait(t)
			if !job.IsInterrupted(first.err) {
				t.Fatalf("first run = %.80q, %v, want an interruption", first.result, first.err)
			}
			saved = &job.Progress{State: []byte(stateOf(t, first.Latest())), Version: first.Latest().Version}
			second := b.run(k, row.payload, saved)
			for range 2 { // mv of coreutils 9.1 fails if its target is moved away between two of its calls
				if second.err != nil && strings.Contains(second.err.Error(), "mv: cannot overwrite directory") {
					second = b.run(k, row.payload, saved)
				}
			}
			if string(second.result) != row.want || second.err != nil {
				t.Errorf("second run = %.80q, %v, want %.80q", second.result, second.err, row.want)
			}
		})
	}
}
