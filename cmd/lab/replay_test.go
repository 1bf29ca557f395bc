package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/replay"
)

// printed runs lab and returns its output.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatalf("lab %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// TestReplayWithoutFlags: the flags' defaults are the default scenario.
func TestReplayWithoutFlags(t *testing.T) {
	s, err := parsed(t, "replay").Replay.scenario(t.Context())
	if diff := cmp.Diff(replay.Default(), s); err != nil || diff != "" {
		t.Errorf("%v, scenario (-want +got):\n%s", err, diff)
	}
}

// TestReplayScenarioFile: --write-scenario prints what a file is read from, and both have the
// same result. Flags that a file would hide are refused.
func TestReplayScenarioFile(t *testing.T) {
	flags := []string{"replay", "--vms=5", "--evictions=1", "--noticed=0.5", "--short-notice=0.1", "--jobs=20", "--job-time=10m", "--seed=7",
		"--checkpoint-interval=30s", "--price=0.25"}
	file := filepath.Join(t.TempDir(), "scenario.json")
	if err := os.WriteFile(file, []byte(printed(t, append(flags, "--write-scenario")...)), 0o600); err != nil {
		t.Fatal(err)
	}
	want, got := printed(t, append(flags, "-o", "json")...), printed(t, "replay", "-o", "json", file)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by flags and by file (-flags +file):\n%s", diff)
	}
	var r replay.Report
	if err := json.Unmarshal([]byte(got), &r); err != nil || r.Done != 20 || r.Cost <= 0 ||
		r.Scenario.Policy.Interval.Duration != 30*time.Second {
		t.Errorf("%v, %+v", err, r)
	}
	var out bytes.Buffer
	for _, both := range [][]string{{"replay", file, "--vms=6"}, {"replay", file, "--no-checkpoints"}, {"replay", "--for=2h", file}} {
		if err := run(both, &out); cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), both[1]) &&
			!strings.Contains(err.Error(), both[2]) {
			t.Errorf("lab %s = %v, want a wrong configuration that names the flag", strings.Join(both, " "), err)
		}
	}
}

func TestReplayReport(t *testing.T) {
	page := filepath.Join(t.TempDir(), "replay.html")
	out := printed(t, "replay", "--vms=3", "--evictions=2", "--noticed=0.5", "--jobs=12", "--html", page)
	for _, want := range []string{"goodput", "after a notice", "without a notice", "Jobs done      12 of 12", page} {
		if !strings.Contains(out, want) {
			t.Errorf("the report has no %q:\n%s", want, out)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "job-12") {
		t.Errorf("page: %v, %d bytes", err, len(text))
	}
}

func TestCompareReport(t *testing.T) {
	out := printed(t, "replay", "--compare", "--vms=3", "--evictions=1", "--for=6h", "--price=0.1")
	for _, want := range []string{"adaptive ", "every 10s", "every 10m", "no checkpoints", "adaptive, no notices",
		"adaptive, moved after 3 to 1 regular", "cost/h"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
	var rows []struct{ Policy string }
	out = printed(t, "replay", "--compare", "--vms=1", "--for=1h", "-o", "json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 9 ||
		rows[0].Policy != "adaptive" {
		t.Errorf("%v, %+v", err, rows)
	}
}

// TestNoRunResumed: a time until a job ran again is shown only where one did.
func TestNoRunResumed(t *testing.T) {
	r := &replay.Report{Scenario: replay.Default(), Sudden: replay.Losses{Runs: 1, Redone: 3, Hidden: 30}}
	r.Warned = replay.Losses{Runs: 2, Resumed: 1, Mean: 4, Median: 4, P99: 4}
	var out bytes.Buffer
	if err := printReport(&out, r, ""); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"after a notice": "2 0s 0s 4s 4s 4s", "without a notice": "1 3s 30s - - -"} {
		found := false
		for line := range strings.Lines(out.String()) {
			rest, ok := strings.CutPrefix(line, name)
			found = found || ok && strings.Join(strings.Fields(rest), " ") == want
		}
		if !found {
			t.Errorf("the report is\n%s\nwant %q for runs that ended %s", out.String(), want, name)
		}
	}
}
