//go:build unix

package program

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// manual is the page for the authors of programs.
func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/jobs.md")
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
		t.Fatalf("docs/jobs.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// TestManualNamesAll: the manual describes every variable and every setting,
// and no other.
func TestManualNamesAll(t *testing.T) {
	text := manual(t)
	row := regexp.MustCompile("(?m)^- `([A-Za-z_]+)`")
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
	proof.Only(t, "it runs the programs of the docs in real time")
	for _, row := range []struct {
		language, program string
		steps             int // to begin with
		job               func(steps int) (payload, want string)
	}{
		{"python", "python3", 2_000, func(steps int) (payload, want string) {
			return "[" + strings.Repeat("1,", steps) + "1]", strconv.Itoa(steps + 1)
		}},
		{"sh", "sh", 150, func(steps int) (payload, want string) {
			return strings.Repeat("abc\n", steps), strings.Repeat("ABC\n", steps)
		}},
	} {
		t.Run(row.language, func(t *testing.T) {
			program := need.Command(t, row.program)
			code := documentedCode(t, row.language)
			script := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(script, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			b, k := setup(t), Kind{Name: "test", Command: []string{program, script}}
			first, payload, want := b.interrupted(k, row.steps, row.job)
			saved := &job.Progress{State: []byte(stateOf(t, first.Latest())), Version: first.Latest().Version}
			second := b.run(k, payload, saved)
			for range 2 { // mv of coreutils 9.1 fails if its target is moved away between two of its calls
				if second.err != nil && strings.Contains(second.err.Error(), "mv: cannot overwrite directory") {
					second = b.run(k, payload, saved)
				}
			}
			if string(second.result) != want || second.err != nil {
				t.Errorf("second run = %.80q, %v, want %.80q", second.result, second.err, want)
			}
		})
	}
}

// interrupted begins a job and evicts it after its first checkpoint. A job that ends before the
// eviction is begun again with twice as many steps.
func (b *rig) interrupted(k Kind, steps int, jobOf func(steps int) (payload, want string)) (w *work, payload, want string) {
	b.t.Helper()
	for most := 100 * steps; steps < most; steps *= 2 {
		payload, want = jobOf(steps)
		if w = b.begin(k, payload, nil); b.evicted(w) {
			return w, payload, want
		}
		if w.err != nil {
			break
		}
		w.Close()
	}
	b.t.Fatalf("first run = %.80q, %v, want an interruption", w.result, w.err)
	return nil, "", ""
}

// evicted evicts a job after its first checkpoint, and reports whether that interrupted it.
func (b *rig) evicted(w *work) bool {
	b.t.Helper()
	b.until("a checkpoint", func() bool {
		select {
		case <-w.done:
			return true
		default:
			return w.Latest() != nil
		}
	})
	w.stop(job.Evicted, 10*time.Second)
	w.wait(b.t)
	return job.IsInterrupted(w.err)
}
