package main

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/lab/up"
)

func TestWrongConfiguration(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"evict"},
		{"evict", "spot_1", "--metadata-port=0"},
		{"up", "--vms=0"},
		{"up", "--files=-1"},
		{"up", "--workers=33"},
		{"up", "--commands"},
		{"stop", "--metadata-port=0"},
		{"up", "--blob-port=70000"},
		{"chaos"},
		{"chaos", "--kills=1", "--workers=65"},
		{"chaos", "--workers=many"},
		{"try"},
		{"try", "no-such-program-anywhere"},
		{"try", "--every=1ms", "go"},
		{"try", "--compare=all", "go"},
		{"try", "--compare-with=no-such-program-anywhere", "go"},
		{"try", "--payload-file=missing", "go"},
		{"try", "--kinds-file=missing.json"},
		{"demo", "--no-such-flag"},
		{"demo", "--html=no-such-folder/page.html"},
		{"replay", "--vms=-1"},
		{"replay", "missing.json"},
		{"replay", "--lives=nobody"},
		{"replay", "--lives=aws-p3", "--vms=0", "--for=20h"},
		{"replay", "--checkpoint-interval=1h"},
	} {
		var out bytes.Buffer
		if err := run(args, &out); cli.Code(err) != cli.ExitConfig {
			t.Errorf("lab %s = %v with exit code %d, want %d", strings.Join(args, " "), err, cli.Code(err), cli.ExitConfig)
		}
		if out.Len() != 0 {
			t.Errorf("lab %s prints %q before it refuses", strings.Join(args, " "), out.String())
		}
	}
}

// parsed returns the flags of a command line.
func parsed(t *testing.T, args ...string) *flags {
	t.Helper()
	var f flags
	if _, err := (cli.Program{Name: "lab"}).Parse(&f, args, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestFlagsReachTry(t *testing.T) {
	t.Setenv("SPOTWORKER_KINDS_FILE", "that of a worker")
	t.Setenv("SPOTWORKER_PAYLOAD", "that of a job")
	if c := parsed(t, "try", "go").Try.Config; c.KindsFile != "" || c.Payload != "" {
		t.Errorf("configuration = %+v, want nothing from the variables of workers and jobs", c)
	}
	f := parsed(t, "try", "--env=A=b,c;d", "--compare=none", "--json", "go")
	if got := f.Try.Config; got.Environment["A"] != "b,c;d" || got.Compare != trial.CompareNothing || !f.WantsJSON() {
		t.Errorf("configuration = %+v, want the variable and the comparison of the flags", got)
	}
}

func TestFlagDefaultsAreTheDefaultConfiguration(t *testing.T) {
	usual := trial.DefaultConfig()
	usual.Command = []string{"./train.py", "--epochs", "3"}
	if diff := cmp.Diff(usual, parsed(t, "try", "./train.py", "--epochs", "3").Try.Config); diff != "" {
		t.Errorf("configuration of lab try without flags (-want +got):\n%s", diff)
	}
	want := up.DefaultConfig()
	want.FileSize = 0 // no flag
	if diff := cmp.Diff(want, parsed(t, "up").Up.Config); diff != "" {
		t.Errorf("configuration of lab up without flags (-want +got):\n%s", diff)
	}
	if got := parsed(t, "evict", "spot_1").Evict.MetadataPort; got != up.DefaultMetadataPort {
		t.Errorf("lab evict asks port %d, want %d", got, up.DefaultMetadataPort)
	}
}

// TestTakenPort starts on a port that something else has: each of the four.
func TestTakenPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for _, flag := range []string{"--blob-port", "--queue-port", "--metadata-port", "--arm-port"} {
		args := []string{"up", "--files=0", "--blob-port=0", "--queue-port=0", "--metadata-port=0", "--arm-port=0", flag + "=" + port}
		var out bytes.Buffer
		err := run(args, &out)
		if cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), port) || !strings.Contains(err.Error(), flag) {
			t.Errorf("lab up with a taken %s = %v with exit code %d, want %d and an error that names flag and port", flag, err, cli.Code(err),
				cli.ExitConfig)
		}
	}
}

func TestEvictWithoutLabUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	_ = listener.Close() // nothing listens there now
	err = run([]string{"evict", "spot_1", "--metadata-port=" + port}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "start lab up") {
		t.Errorf("lab evict without lab up = %v, want an error that says what to start", err)
	}
}

// TestFormat: -o json and --json mean the same, and a command without a form in JSON refuses
// both before it starts anything.
func TestFormat(t *testing.T) {
	for _, flag := range []string{"--json", "--output=json", "-ojson"} {
		if f := parsed(t, "try", flag, "./train.py"); !f.WantsJSON() {
			t.Errorf("lab try %s prints text, want JSON", flag)
		}
		for _, command := range []string{"up", "demo", "chaos"} {
			if err := run([]string{command, flag}, &bytes.Buffer{}); cli.Code(err) != cli.ExitConfig {
				t.Errorf("lab %s %s = %v, want a refusal with exit code %d", command, flag, err, cli.ExitConfig)
			}
		}
	}
	if f := parsed(t, "try", "./train.py", "--json"); f.WantsJSON() {
		t.Error("a flag of the program counts as one of lab try")
	}
}
