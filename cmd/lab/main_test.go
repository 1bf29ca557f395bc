package main

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab/chaos"
	"github.com/spotworker/spotworker/internal/lab/demo"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/lab/up"
)

func TestHelpAndVersion(t *testing.T) {
	for want, args := range map[string][]string{
		"--checkpoint-interval": {"demo", "--help"},
		"--identity":            {"up", "--help"},
		"--evictions":           {"try", "--help"},
		"--metadata-port":       {"withdraw", "--help"},
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
		{"evict"},
		{"evict", "spot_1", "--metadata-port=0"},
		{"up", "--vms=0"},
		{"up", "--files=-1"},
		{"up", "--workers=33"},
		{"up", "--commands"},
		{"up", "--workers=1"}, // there is no worker beside this program
		{"stop", "--metadata-port=0"},
		{"up", "--blob-port=70000"},
		{"demo", "--workers=0"},
		{"chaos"},
		{"chaos", "--kills=1", "--workers=65"},
		{"demo", "--workers=many"},
		{"try"},
		{"try", "no-such-program-anywhere"},
		{"try", "--every=1ms", "go"},
		{"try", "--compare=all", "go"},
		{"try", "--compare-with=no-such-program-anywhere", "go"},
		{"try", "--payload-file=missing", "go"},
		{"try", "--kinds-file=missing.json"},
		{"demo", "--time-limit=0s"},
		{"demo", "--checkpoint-interval=1ms"},
		{"demo", "--no-such-flag"},
		{"demo", "--html=no-such-folder/page.html"},
		{"replay", "--vms=-1"},
		{"replay", "missing.json"},
		{"replay", "--lives=nobody"},
		{"replay", "--lives=aws-p3", "--vms=0", "--for=20h"},
		{"replay", "--checkpoint-interval=1h"},
		{"compare", "--load=2"},
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

func TestFlagsReachTheDemo(t *testing.T) {
	want := demo.DefaultConfig()
	want.Workers, want.JobsAtOnce, want.Files, want.JobTime = 5, 4, 7, 9*time.Second
	want.CheckpointInterval, want.TimeLimit = 3*time.Second, time.Minute
	want.Binaries, want.Keep = "b", true
	f := parsed(t, "demo", "--workers=5", "--jobs-at-once=4", "--files=7", "--job-time=9s",
		"--checkpoint-interval=3s", "--time-limit=1m", "--bin=b", "--keep")
	if diff := cmp.Diff(want, f.Demo.config()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestFlagsReachChaos(t *testing.T) {
	if diff := cmp.Diff(chaos.DefaultConfig(), parsed(t, "chaos").Chaos.config()); diff != "" {
		t.Errorf("configuration of lab chaos without flags (-want +got):\n%s", diff)
	}
	t.Setenv(chaosStorage, "c")
	want := chaos.Config{
		Kills: 1, For: 2 * time.Second, Seed: 3, Workers: 4, JobsAtOnce: 5, PerSecond: 6, JobTime: 7 * time.Second,
		Visibility: 8 * time.Second, CheckpointInterval: 9 * time.Second, FreezeEvery: 10, CutEvery: 11,
		DuplicateEvery: 12, LargeEvery: 13, StreamEvery: 14, EvictEvery: 15, ProgramEvery: 16, LackEvery: 17, ConnectionString: "c", Keep: true,
	}
	f := parsed(t, "chaos", "--kills=1", "--for=2s", "--seed=3", "--workers=4", "--jobs-at-once=5", "--per-second=6", "--job-time=7s",
		"--visibility=8s", "--checkpoint-interval=9s", "--freeze-every=10", "--cut-every=11",
		"--duplicate-every=12", "--large-every=13", "--stream-every=14",
		"--evict-every=15", "--program-every=16", "--lack-every=17", "--keep")
	if diff := cmp.Diff(want, f.Chaos.config()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestFlagsReachTry(t *testing.T) {
	t.Setenv("SPOTWORKER_KINDS_FILE", "that of a worker")
	t.Setenv("SPOTWORKER_PAYLOAD", "that of a job")
	if c := parsed(t, "try", "go").Try.config(); c.KindsFile != "" || c.Payload != "" {
		t.Errorf("configuration = %+v, want nothing from the variables of workers and jobs", c)
	}
	want := trial.Config{
		KindsFile: "k", Kind: "a", Snapshot: true, Environment: map[string]string{"A": "b,c;d"}, PayloadFile: "p",
		Every: time.Second, Evictions: 3,
		Timeout: time.Minute, Grace: 2 * time.Second, Compare: trial.CompareNothing, Keep: true,
	}
	f := parsed(t, "try", "--kinds-file=k", "--kind=a", "--snapshot", "--env=A=b,c;d", "--payload-file=p", "--every=1s", "--evictions=3",
		"--timeout=1m", "--grace=2s", "--compare=none", "--keep", "--json")
	if got := parsed(t, "try", "--compare-with=diff -r", "go").Try.config().CompareWith; got != "diff -r" {
		t.Errorf("--compare-with = %q", got)
	}
	if diff := cmp.Diff(want, f.Try.config()); diff != "" || !f.WantsJSON() {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestFlagsReachUp(t *testing.T) {
	want := up.DefaultConfig()
	want.VMs, want.Local.Identity, want.Files, want.JobTime = 5, true, 0, time.Second
	want.Local.BlobPort, want.Local.QueuePort, want.Local.MetadataPort, want.Local.ManagerPort = 1, 2, 3, 4
	want.Flexible, want.EvictionDelay = true, 2*time.Second
	want.Workers, want.KindsFile, want.Commands = 6, "k", true
	want.Local.Latency, want.Local.Throttle = 10*time.Millisecond, 2000
	f := parsed(t, "up", "--vms=5", "--flexible", "--identity", "--files=0", "--job-time=1s", "--eviction-delay=2s",
		"--latency=10ms", "--throttle=2000", "--workers=6", "--kinds-file=k", "--commands",
		"--blob-port=1", "--queue-port=2", "--metadata-port=3", "--arm-port=4")
	if diff := cmp.Diff(want, f.Up.config()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestFlagDefaultsAreTheDefaultConfiguration(t *testing.T) {
	if diff := cmp.Diff(demo.DefaultConfig(), parsed(t, "demo").Demo.config()); diff != "" {
		t.Errorf("configuration of lab demo without flags (-want +got):\n%s", diff)
	}
	usual := trial.DefaultConfig()
	usual.Command = []string{"./train.py", "--epochs", "3"}
	if diff := cmp.Diff(usual, parsed(t, "try", "./train.py", "--epochs", "3").Try.config()); diff != "" {
		t.Errorf("configuration of lab try without flags (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(up.DefaultConfig(), parsed(t, "up").Up.config()); diff != "" {
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

// TestMan: the manual page has the commands and their flags.
func TestMan(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"man"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH \"LAB\" 1 \"\" \"lab devel\"", ".SS \"imds [flags]\"", `\-\-metadata\-port`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the manual page lacks %s:\n%s", want, &out)
		}
	}
}
