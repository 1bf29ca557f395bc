package mutation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const sample = "./internal/test/mutation/testdata/sample"

// TestSample judges the mutants of a package that has, for each operator, mutants that are
// noticed and mutants that survive. One loops, one does not compile.
func TestSample(t *testing.T) {
	packages, err := Load(t.Context(), "../../..", sample)
	if err != nil {
		t.Fatal(err)
	}
	var notes, survivors strings.Builder
	results, err := Judge(t.Context(), packages, Options{
		Judges: []string{sample}, Each: time.Minute, Total: time.Hour, Grace: 5 * time.Second, Parallel: 2,
		Note:      func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) },
		Survivors: &survivors,
	})
	if err != nil {
		t.Fatal(err)
	}
	if left := "left out, since it fails without a mutant: " + sample + " TestBroken (TestBroken)"; !strings.Contains(notes.String(), left) {
		t.Errorf("the notes do not say %q:\n%s", left, &notes)
	}
	verdicts := map[Verdict]string{Noticed: "noticed", Survived: "survived", Unreached: "not reached", Undecided: "undecided"}
	var got strings.Builder
	for _, r := range results {
		fmt.Fprintf(&got, "%s: %s: %s → %s\n", verdicts[r.Verdict], r.Operator, r.Old, r.New)
		if strings.Contains(r.Old, "c.Left--") && r.By != timedOut {
			t.Errorf("the loop ended with %q, want timed out", r.By)
		}
	}
	compare(t, "verdicts.txt", got.String())
	total := Total(results)
	if total.TimedOut != 1 {
		t.Errorf("%d mutants timed out, want one", total.TimedOut)
	}
	if printed := strings.Count(survivors.String(), "\n"); printed != total.Survived+total.Unreached {
		t.Errorf("%d survivors were printed, want %d:\n%s", printed, total.Survived+total.Unreached, &survivors)
	}
}

// compare compares a text with a file in testdata.
func compare(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: (-want +got):\n%s\n%s", name, diff, got)
	}
}

// TestTimeIsUp: a run ends at its limit, and leaves mutants undecided.
func TestTimeIsUp(t *testing.T) {
	j := judging{tests: []*test{{name: "TestX", reaches: map[int]bool{1: true}}}, end: time.Now()}
	r, err := j.one(t.Context(), &Mutant{ID: 1})
	if err != nil || r.Verdict != Undecided {
		t.Errorf("verdict %d, %v, want %d", r.Verdict, err, Undecided)
	}
}

// TestOrderOfTests: the shortest test of the mutant's package runs first, unless a short test noticed a
// mutant of the same file.
func TestOrderOfTests(t *testing.T) {
	all := map[int]bool{1: true, 2: true}
	tests := []*test{
		{name: "TestA", took: time.Millisecond, reaches: map[int]bool{1: true}}, {name: "TestB", took: 2 * time.Millisecond, reaches: all},
		{name: "TestC", took: 3 * time.Millisecond, reaches: all}, {name: "TestLong", took: time.Minute, reaches: all},
		{name: "TestOwn", took: time.Hour, reaches: map[int]bool{1: true}, binary: binary{pattern: "./own"}},
	}
	j := judging{tests: tests}
	one, same, elsewhere := &Mutant{ID: 1, File: "a.go", Package: "./own"}, &Mutant{ID: 2, File: "a.go"}, &Mutant{ID: 2, File: "b.go"}
	j.learn(one, tests[3:4], "TestLong")
	j.learn(one, tests[:2], "TestA")
	j.learn(one, tests[:3], "TestC")
	j.learn(one, tests[:3], "panic: it may be of any of them")
	for m, want := range map[*Mutant]string{
		one: "TestC TestA TestOwn TestB TestLong", same: "TestC TestB TestLong", elsewhere: "TestB TestC TestLong",
	} {
		var names []string
		for _, t := range j.reaching(m) {
			names = append(names, t.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("order for mutant %d of %s = %s, want %s", m.ID, m.File, got, want)
		}
	}
}

// TestBusyMachine: tests that take too long with a mutant, and as long without it, get more time.
func TestBusyMachine(t *testing.T) {
	broken := errors.New("no process")
	for name, row := range map[string]struct {
		with, without time.Duration // that the tests take; 0 if they cannot run
		want          outcome
		err           error
		last          time.Duration // limit
	}{
		"in time":                  {time.Second, time.Second, outcome{}, nil, time.Second},
		"a loop":                   {time.Hour, time.Second, outcome{failed: true, timedOut: true}, nil, time.Second},
		"a loop, busy machine":     {time.Hour, 3 * time.Second, outcome{failed: true, timedOut: true}, nil, 4 * time.Second},
		"no loop, busy machine":    {5 * time.Second, 5 * time.Second, outcome{}, nil, 8 * time.Second},
		"it cannot run":            {0, time.Second, outcome{}, broken, time.Second},
		"without it it cannot run": {time.Hour, 0, outcome{failed: true, timedOut: true}, broken, time.Second},
	} {
		var last time.Duration
		got, err := inTime(time.Second, func(limit time.Duration, env ...string) (outcome, error) {
			took := row.without
			if len(env) > 0 {
				took = row.with
			}
			last = limit
			switch {
			case took == 0:
				return outcome{}, broken
			case took > limit:
				return outcome{failed: true, timedOut: true}, nil
			}
			return outcome{}, nil
		}, "MUTANT=1")
		if got != row.want || !errors.Is(err, row.err) || last != row.last {
			t.Errorf("%s: %+v, %v within %s, want %+v, %v within %s", name, got, err, last, row.want, row.err, row.last)
		}
	}
}

// TestUnknownPackage: the error names the package.
func TestUnknownPackage(t *testing.T) {
	if _, err := Load(t.Context(), ".", "./none"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("Load of a missing package = %v, want an error that names it", err)
	}
}

// TestBaseline: shares of noticed mutants may rise and must not fall.
func TestBaseline(t *testing.T) {
	b := Baseline{{Package: "./a", Judges: []string{"./c"}, Noticed: 90}, {Package: "./b", Noticed: 50}}
	counts := map[string]Count{"./a": {Generated: 1000, Noticed: 899, Survived: 101}}
	if err := b.Compare(counts); err == nil || !strings.Contains(err.Error(), "./a: 89.9 %") {
		t.Errorf("a lower share: %v, want an error", err)
	}
	counts["./a"] = Count{Generated: 1000, Noticed: 900, Undecided: 0}
	if err := b.Compare(counts); err != nil {
		t.Errorf("an equal share: %v", err)
	}
	counts["./new"] = Count{Generated: 4, Noticed: 3, Undecided: 0}
	name := filepath.Join(t.TempDir(), "baseline.json")
	if err := b.Raise(counts).Write(name); err != nil {
		t.Fatal(err)
	}
	got, err := ReadBaseline(name)
	want := Baseline{b[0], b[1], {Package: "./new", Noticed: 75}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("the new baseline (-want +got):\n%s%v", diff, err)
	}
	if diff := cmp.Diff([]string{"./a", "./c"}, b.Judges("./a")); diff != "" {
		t.Errorf("judges (-want +got):\n%s", diff)
	}
}
