//go:build integration && unix

package tryout

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/test/need"
)

// TestMain lets the test binary be the worker of a trial.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	labtest.Main(m)
}

// programs are the programs of the folder testdata of package trial.
var programs = filepath.Join("..", "..", "..", "lab", "trial", "testdata")

// tried is a program, and what `lab try` must find out about it.
type tried struct {
	command   string // interpreter, file and arguments
	finds     []string
	never     []string // causes that it does not have
	grace     time.Duration
	every     time.Duration
	evictions int  // 2 unless it is given
	good      bool // interruptible all the same
}

var all = []tried{
	{command: "python3 good.py 60", evictions: 6, good: true},
	{command: "sh half_done.sh", finds: []string{"half-done"}},
	{command: "python3 torn.py", finds: []string{"torn-checkpoint", "checkpoint-in-place"}},
	{command: "python3 in_place.py", finds: []string{"result-in-place"}},
	{command: "python3 scratch.py", finds: []string{"saves-nothing", "scratch-state"}},
	{command: "sh half_scratch.sh", finds: []string{"result-differs", "scratch-state"}},
	{command: "python3 late.py", grace: time.Second, finds: []string{"late-save", "saves-at-stop-only"}},
	{command: "python3 grows.py", finds: []string{"checkpoint-grows"}, good: true},
	{command: "sh random.sh", finds: []string{"not-deterministic"}},
	{command: "python3 daemon.py", evictions: 1, finds: []string{"left-group"}, good: true},
	{command: "sh nothing.sh", finds: []string{"saves-nothing"}},
	{command: "sh forgets.sh", evictions: 1, finds: []string{"ignores-restore"}},
	{command: "sh exit_zero.sh", finds: []string{"exit-0"}, good: true},
	{command: "sh stubborn.sh", grace: time.Second, every: time.Second, evictions: 1, finds: []string{"ignores-stop"}, good: true},
	{command: "python3 changes.py", finds: []string{"checkpoint-changed"}},
	{command: "sh fails.sh", finds: []string{"program-fails"}},
	{command: "sh short.sh", finds: []string{"too-short"}, good: true},
	{command: "sh leaves.sh", finds: []string{"daemon"}},
	{command: "sh silent.sh", finds: []string{"no-result"}},
	{command: "python3 rng_lost.py", finds: []string{"result-differs"}, never: []string{"scratch-state", "half-done"}},
	{command: "sh too_early.sh", finds: []string{"result-differs"}, never: []string{"half-done"}},
	{command: "python3 twice.py", finds: []string{"result-differs"}, never: []string{"scratch-state", "half-done"}},
	{command: "python3 outside.py", finds: []string{"result-differs", "outside-state"}, never: []string{"scratch-state", "half-done"}},
	{command: "python3 skips.py", evictions: 3, finds: []string{"outputs-only"}, good: true},
	{command: "python3 at_stop.py", finds: []string{"saves-at-stop-only"}, good: true},
}

// hasAll reports whether findings have all of these names.
func hasAll(findings []trial.Finding, names []string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(findings, func(f trial.Finding) bool { return f.Name == name }) {
			return false
		}
	}
	return true
}

func TestFindings(t *testing.T) {
	for _, one := range all {
		t.Run(one.command, func(t *testing.T) {
			words := strings.Fields(one.command)
			need.Command(t, words[0])
			t.Parallel()
			words[1] = filepath.Join(programs, words[1])
			c := trial.DefaultConfig()
			c.Command, c.Evictions, c.Timeout = words, 2, 10*time.Minute
			if one.evictions != 0 {
				c.Evictions = one.evictions
			}
			if one.grace != 0 {
				c.Grace = one.grace
			}
			c.Every = one.every
			var out labtest.Output
			report, err := trial.Run(t.Context(), c, &out)
			for range 2 { // programs of two seconds are observed by polling: a busy machine is no fault
				if hasAll(report.Findings, one.finds) && report.Interruptible == one.good {
					break
				}
				out = labtest.Output{}
				report, err = trial.Run(t.Context(), c, &out)
			}
			verdict := errors.Is(err, trial.ErrNotInterruptible) || errors.Is(err, trial.ErrNotTried)
			if one.good && err != nil || !one.good && !verdict || report.Interruptible != one.good {
				t.Errorf("Run = %v, want interruptible: %t\n%s", err, one.good, out.String())
			}
			var found []string
			for _, f := range report.Findings {
				found = append(found, f.Name)
				if one.good && f.Severity == trial.Problem {
					t.Errorf("a problem that there is not: %s", f.Name)
				}
			}
			if slices.Contains(one.finds, "outside-state") && slices.Contains(found, "outside-not-checked") {
				need.Missing(t, "a mount namespace, as root has it")
			}
			for _, wrong := range one.never {
				if slices.Contains(found, wrong) {
					t.Errorf("findings are %q, want no %s\n%s", found, wrong, out.String())
				}
			}
			for _, want := range one.finds {
				if !slices.Contains(found, want) {
					t.Errorf("findings are %q, want %s among them\n%s", found, want, out.String())
				}
			}
		})
	}
}
