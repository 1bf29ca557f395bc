package program

import (
	"testing"

	"github.com/spotworker/spotworker/internal/program/tree"
)

// TestJudge is the table of docs/jobs.md: the meaning of a program's end.
func TestJudge(t *testing.T) {
	code := func(n int) tree.Exit { return tree.Exit{Code: n} }
	signal := func(name string) tree.Exit { return tree.Exit{Code: -1, By: name} }
	for _, row := range []struct {
		name string
		facts
		want exitVerdict
	}{
		{"done without a result", facts{exit: code(0)}, done},
		{"done with a result", facts{exit: code(0), result: true}, done},
		{"stopped, no result: half done", facts{exit: code(0), stopped: true}, interrupted},
		{"stopped, and the result was in place", facts{exit: code(0), stopped: true, result: true}, done},
		{"later", facts{exit: code(75)}, interrupted},
		{"later, with a result", facts{exit: code(75), result: true}, interrupted},
		{"later, after a stop", facts{exit: code(75), stopped: true}, interrupted},
		{"failure", facts{exit: code(1)}, failed},
		{"failure with a result", facts{exit: code(1), result: true}, failed},
		{"failure after a stop", facts{exit: code(1), stopped: true}, interrupted},
		{"failure after a stop, with a result", facts{exit: code(1), stopped: true, result: true}, interrupted},
		{"SIGTERM from elsewhere", facts{exit: signal("SIGTERM")}, unclear},
		{"SIGTERM from elsewhere, no notice came", facts{exit: signal("SIGTERM"), waited: true}, failed},
		{"SIGTERM from elsewhere, a notice came", facts{exit: signal("SIGTERM"), waited: true, stopped: true}, interrupted},
		{"SIGTERM from elsewhere, a notice came, with a result", facts{exit: signal("SIGTERM"), waited: true, stopped: true, result: true},
			interrupted},
		{"SIGTERM from us", facts{exit: signal("SIGTERM"), stopped: true}, interrupted},
		{"a crash", facts{exit: signal("SIGSEGV")}, unclear},
		{"killed by us after a stop", facts{exit: signal("SIGKILL"), stopped: true, killed: true}, interrupted},
		{"killed by us after a stop, with a result", facts{exit: signal("SIGKILL"), stopped: true, killed: true, result: true}, interrupted},
		{"killed by us for a fault", facts{exit: signal("SIGKILL"), killed: true}, failed},
		{"a shell tells of SIGTERM", facts{exit: code(143)}, unclear},
		{"a shell tells of SIGKILL, no notice came", facts{exit: code(137), waited: true}, failed},
		{"a code that is no signal", facts{exit: code(255)}, failed},
		{"a shell found no program", facts{exit: code(127)}, failed},
		{"128 is no signal", facts{exit: code(128)}, failed},
	} {
		if got := decide(row.facts); got != row.want {
			t.Errorf("%s: judge = %s, want %s", row.name, got, row.want)
		}
	}
}

// In all cases, a job is done only by exit code 0, a stop never makes a failure, and
// waiting settles every doubt.
func TestJudgeEverywhere(t *testing.T) {
	for code := -1; code < 256; code++ {
		for bits := range 16 {
			f := facts{exit: tree.Exit{Code: code}, stopped: bits&1 > 0, result: bits&2 > 0, killed: bits&4 > 0, waited: bits&8 > 0}
			if code < 0 {
				f.exit.By = "signal SIGKILL"
			}
			got := decide(f)
			switch {
			case got == done && code != 0:
				t.Errorf("judge(%+v) = done, want it with exit code 0 only", f)
			case got == failed && f.stopped:
				t.Errorf("judge(%+v) = failed, want no failure after a stop", f)
			case got == done && f.stopped && !f.result:
				t.Errorf("judge(%+v) = done, want a result after a stop", f)
			case got == unclear && f.waited:
				t.Errorf("judge(%+v) = unclear, want an answer after waiting", f)
			}
		}
	}
}
