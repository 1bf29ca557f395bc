package trial

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestMain lets the test binary be the worker of a trial.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	labtest.Main(m)
}

// TestRun tries a program that is interruptible, with one eviction. Programs that are not
// are tried in internal/test/integration/tryout.
func TestRun(t *testing.T) {
	need.NotOn(t, "windows", "its program is stopped by SIGTERM")
	need.Command(t, "python3")
	t.Setenv("TMPDIR", t.TempDir())
	c := DefaultConfig()
	c.Command, c.Evictions = []string{"python3", filepath.Join("testdata", "good.py"), "30"}, 1
	var out bytes.Buffer
	report, err := Run(t.Context(), c, &out)
	if err != nil || !report.Interruptible {
		t.Fatalf("Run = %v\n%s", err, out.String())
	}
	for _, want := range []string{"testdata/good.py becomes an absolute path", "Undisturbed: done in",
		"Eviction 1: spot_1 was ", "exited with code 75", "INTERRUPTIBLE  0 problems"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("the story does not say %q:\n%s", want, out.String())
		}
	}
	if len(report.Evictions) != 1 || report.Undisturbed.Seconds < 1.4 {
		t.Errorf("report = %+v, want one eviction of a program of 1.5 s", report)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
		t.Errorf("the trial left %q behind", left)
	}
}

// TestRunOfFasterProgram tries a program that takes longest when it is not disturbed: it is
// done before its first eviction, and is evicted earlier then.
func TestRunOfFasterProgram(t *testing.T) {
	proof.Only(t, "it runs real workers; TestRun is its quick part")
	need.NotOn(t, "windows", "its program is a script of sh")
	const program = `case $SPOTWORKER_JOB_ID in try-3) exec sleep 0.2;; *) sleep 2;; esac`
	for every, want := range map[time.Duration]bool{0: true, 3 * time.Second: false} {
		t.Run(every.String(), func(t *testing.T) {
			c := DefaultConfig()
			c.Command, c.Evictions, c.Every = []string{"sh", "-c", program}, 1, every
			var out bytes.Buffer
			report, err := Run(t.Context(), c, &out)
			if found := !slices.Contains(names(report.Findings), "not-evicted"); found != want || (len(report.Evictions) == 1) != want {
				t.Errorf("Run = %v, with %d evictions and the findings %q, want an eviction: %t\n%s",
					err, len(report.Evictions), names(report.Findings), want, out.String())
			}
		})
	}
}

// TestCompareWith leaves the comparison to a command, which gets results and outputs.
func TestCompareWith(t *testing.T) {
	need.NotOn(t, "windows", "its program is a script of sh")
	compare := filepath.Join(t.TempDir(), "compare.sh")
	if err := os.WriteFile(compare, []byte(`
test "$(cut -c1-$1 "$2/result")" = "$(cut -c1-$1 "$3/result")" && cmp "$2/outputs/d/same" "$3/outputs/d/same" || {
echo "not as near as $1"; exit 3; }`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ first, digits, want string }{
		"near": {"3.1", "3", ""}, "far": {"", "9", "not as near as 9"}, // nanoseconds have nine digits
	} {
		t.Run(name, func(t *testing.T) {
			program := `mkdir $SPOTWORKER_OUTPUT/d; echo x >$SPOTWORKER_OUTPUT/d/same; echo ` + row.first +
				`$(date +%N) >$TMPDIR/r; mv $TMPDIR/r $SPOTWORKER_RESULT`
			c := DefaultConfig()
			c.Command, c.Evictions, c.CompareWith = []string{"sh", "-c", program}, 1, "sh "+compare+" "+row.digits
			var out bytes.Buffer
			report, err := Run(t.Context(), c, &out)
			found := slices.Contains(names(report.Findings), "not-deterministic")
			if found != (row.want != "") { // a slow machine finds more
				t.Errorf("Run = %v, with not-deterministic: %t\n%s", err, found, out.String())
			}
			if row.want != "" && !strings.Contains(strings.Join(strings.Fields(out.String()), " "), row.want) {
				t.Errorf("the story does not show what the command said, %q:\n%s", row.want, out.String())
			}
		})
	}
}

// TestRunOutOfTime tries a program that never ends, and a limit that is over before the local Azure
// has started.
func TestRunOutOfTime(t *testing.T) {
	proof.Only(t, "it runs real workers; TestRun is its quick part")
	need.Command(t, "sleep")
	for _, limit := range []time.Duration{5 * time.Second, time.Nanosecond} {
		t.Setenv("TMPDIR", t.TempDir())
		c := DefaultConfig()
		c.Command, c.Timeout = []string{"sleep", "1000"}, limit
		var out bytes.Buffer
		report, err := Run(t.Context(), c, &out)
		if !errors.Is(err, ErrNotTried) || !slices.Equal(names(report.Findings), []string{"out-of-time"}) {
			t.Errorf("%s: Run = %v with findings %q, want out-of-time\n%s", limit, err, names(report.Findings), out.String())
		}
		if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
			t.Errorf("%s: the trial left %q behind", limit, left)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	good := DefaultConfig()
	good.Command = []string{"true"}
	if err := good.Validate(); err != nil {
		t.Fatalf("the default configuration is refused: %v", err)
	}
	for want, spoil := range map[string]func(*Config){
		"give a program":    func(c *Config) { c.Command = nil },
		"not both":          func(c *Config) { c.KindsFile = "kinds.json" },
		"--kind names":      func(c *Config) { c.Kind = "x" },
		"--payload-file, n": func(c *Config) { c.Payload, c.PayloadFile = "x", "y" },
		"--compare-with":    func(c *Config) { c.CompareWith = "no-such-program-anywhere -x" },
		"none or --compare": func(c *Config) { c.Compare, c.CompareWith = CompareNothing, "diff" },
		"--every":           func(c *Config) { c.Every = 1 },
		"--evictions":       func(c *Config) { c.Evictions = 0 },
		"--timeout":         func(c *Config) { c.Timeout = 0 },
		"--grace":           func(c *Config) { c.Grace = 2 * LongestGrace },
	} {
		c := good
		spoil(&c)
		_, err := Run(t.Context(), c, &bytes.Buffer{})
		if wrong, ok := errors.AsType[*ConfigError](err); !ok || !strings.Contains(wrong.Error(), want) {
			t.Errorf("Run = %v, want a ConfigError about %q", err, want)
		}
	}
}

func TestFindProgram(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("program", "#!/bin/sh\n", 0o600)
	write("data.csv", "1,2\n", 0o600)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	c := Config{Command: []string{self, "data.csv", "missing.csv", "-x"}}
	p, err := c.findProgram()
	if want := []string{self, filepath.Join(folder, "data.csv"), "missing.csv", "-x"}; err != nil || !slices.Equal(p.command, want) {
		t.Errorf("command = %q, %v, want %q", p.command, err, want)
	}
	if runtime.GOOS != "windows" {
		if _, err := (Config{Command: []string{"./program"}}).findProgram(); err == nil || !strings.Contains(err.Error(), "chmod +x") {
			t.Errorf("a file that is not executable = %v, want how to make it so", err)
		}
	}
	if _, err := (Config{Command: []string{"no-such-program"}}).findProgram(); err == nil ||
		!strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a missing program = %v, want its name", err)
	}

	t.Setenv("PASSED", "yes")
	quoted := strings.ReplaceAll(self, `\`, `\\`)
	write("kinds.json", `{"kinds": {"a": {"command": ["`+quoted+
		`"], "directory": ".", "environment": {"PASSED": null}, "max_failures": 9},
		"b": {"command": ["`+quoted+`"], "tokens": ["https://storage.azure.com/"]}}}`, 0o600)
	for kind, want := range map[string]string{"": "name one with --kind: a, b", "c": `no kind "c"`, "b": "tokens"} {
		if _, err := (Config{KindsFile: "kinds.json", Kind: kind}).findProgram(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kind %q = %v, want %q", kind, err, want)
		}
	}
	p, err = Config{KindsFile: "kinds.json", Kind: "a", Environment: map[string]string{"MORE": "1"}}.findProgram()
	if err != nil {
		t.Fatal(err)
	}
	if env, _ := p.settings["environment"].(map[string]string); env["PASSED"] != "yes" || env["MORE"] != "1" {
		t.Errorf("environment = %v, want what the kind passes on and the flag", env)
	}
	if p.settings["max_failures"] != 1 || p.settings["directory"] != folder {
		t.Errorf("settings = %v", p.settings)
	}
	if _, err := p.write(t.TempDir()); err != nil {
		t.Errorf("the kinds file of the trial is refused: %v", err)
	}
}

// TestHelper runs the tests of the helper for Python.
func TestHelper(t *testing.T) {
	python := need.Command(t, "python3")
	need.NotOn(t, "windows", "its tests send signals")
	cmd := exec.CommandContext(t.Context(), python, "-B", "-W", "error", "-m", "unittest", "spotworker_test")
	cmd.Dir = filepath.Join("..", "..", "..", "python")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("unittest = %v\n%s", err, out)
	}
}
