package need

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// outcome records how a test ends.
type outcome struct {
	testing.TB

	text string
}

func (*outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.end("skipped: " + fmt.Sprintf(format, args...))
}
func (o *outcome) Fatalf(format string, args ...any) {
	o.end("failed: " + fmt.Sprintf(format, args...))
}

func (o *outcome) end(text string) {
	o.text = text
	panic(o)
}

// endOf returns how a test ends.
func endOf(test func(t testing.TB)) (text string) {
	o := &outcome{text: "passed"}
	defer func() {
		if r := recover(); r != nil && r != any(o) {
			panic(r)
		}
		text = o.text
	}()
	test(o)
	return o.text
}

// TestMissing: a missing part skips a test, and fails it in CI unless CI's machine cannot
// have the part.
func TestMissing(t *testing.T) {
	for _, row := range []struct {
		name          string
		test          func(t testing.TB)
		outside, inCI string // how the message begins
	}{
		{"a command", func(t testing.TB) { Command(t, "no-such-command") },
			"skipped: missing: no-such-command in PATH", "failed: missing: no-such-command in PATH"},
		{"a command that is there", func(t testing.TB) { Command(t, os.Args[0]) }, "passed", "passed"},
		{"controllers", func(t testing.TB) { Absent(t, Controllers, "no memory") },
			"skipped: missing: cgroup v2 controllers: no memory", "skipped: missing: cgroup v2 controllers: no memory"},
		{"a part without a reason", func(t testing.TB) { Absent(t, "a disk", "none") }, "failed: package need", "failed: package need"},
		{"another system", func(t testing.TB) { On(t, "it has sockets", "plan9") }, "skipped: only on plan9", "skipped: only on plan9"},
		{"a flag", func(t testing.TB) { Flag(t, "figures", false) }, "skipped: runs only with -figures", "skipped: runs only with -figures"},
		{"a test of another test", func(t testing.TB) { Caller(t, "TestUsers", false) }, "skipped: TestUsers", "skipped: TestUsers"},
	} {
		for ci, want := range map[string]string{"": row.outside, "true": row.inCI} {
			t.Run(row.name+", CI="+ci, func(t *testing.T) {
				NotOn(t, "windows", "Wine is not CI's machine")
				t.Setenv("CI", ci)
				if got := endOf(row.test); !strings.HasPrefix(got, want) {
					t.Errorf("the test ends with %q, want %q", got, want)
				}
			})
		}
	}
}

// TestAbsentPartsAreListed: docs/proof.md lists every part that CI's machine cannot have.
func TestAbsentPartsAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository.Root(t), "docs", "proof.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "\n## Not tested in CI\n")
	if !found {
		t.Fatal(`docs/proof.md has no section "Not tested in CI"`)
	}
	list, _, _ = strings.Cut(list, "\n## ")
	for part := range absentInCI {
		if !strings.Contains(list, "\n- "+string(part)+":") {
			t.Errorf(`docs/proof.md does not list %q as not tested in CI`, part)
		}
	}
}
