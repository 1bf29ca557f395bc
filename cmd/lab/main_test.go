package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
)

func TestHelpAndVersion(t *testing.T) {
	for want, args := range map[string][]string{
		"--checkpoint-interval": {"demo", "--help"},
		"lab devel":             {"--version"},
	} {
		var out bytes.Buffer
		if err := run(args, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("lab %s = %v and prints %q, want it to print %q", strings.Join(args, " "), err, out.String(), want)
		}
	}
}

func TestWrongConfiguration(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"up"},
		{"demo", "--workers=0"},
		{"demo", "--workers=many"},
		{"demo", "--time-limit=0s"},
		{"demo", "--checkpoint-interval=1ms"},
		{"demo", "--no-such-flag"},
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

func TestFlagsReachTheDemo(t *testing.T) {
	var c command
	args := []string{
		"demo", "--workers=5", "--jobs-at-once=4", "--files=7", "--checkpoint-interval=3s", "--time-limit=1m", "--bin=b", "--keep",
	}
	if _, err := (cli.Program{Name: "lab"}).Parse(&c, args, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	want := lab.DefaultConfig()
	want.Workers, want.JobsAtOnce, want.Files = 5, 4, 7
	want.CheckpointInterval, want.TimeLimit = 3*time.Second, time.Minute
	want.Binaries, want.Keep = "b", true
	if diff := cmp.Diff(want, c.Demo.config()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestFlagDefaultsAreTheDefaultConfiguration(t *testing.T) {
	var c command
	if _, err := (cli.Program{Name: "lab"}).Parse(&c, []string{"demo"}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lab.DefaultConfig(), c.Demo.config()); diff != "" {
		t.Errorf("configuration without flags (-want +got):\n%s", diff)
	}
}
