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
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/trial"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

func of(d time.Duration) replay.Duration { return replay.Duration{Duration: d} }

func TestWorkOf(t *testing.T) {
	measured := trial.Measured{Seconds: 90, StateBytes: 50e6, StateEvery: 2.5, AtNotice: true, Stop: 0.2, Start: 1.5}
	want := replay.Default().Work
	want.Length, want.Save, want.Restore = of(90*time.Second), of(525*time.Millisecond), of(2025*time.Millisecond)
	want.States, want.Stop, want.Beside = of(2500*time.Millisecond), of(200*time.Millisecond), true
	if diff := cmp.Diff(want, workOf(measured, replay.Default().Work, nil)); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
	want.Length, want.Save, want.Restore = of(time.Hour), of(35*time.Millisecond), of(time.Second)
	given := map[string]bool{"job-time": true, "save-time": true, "restore-time": true}
	if diff := cmp.Diff(want, workOf(measured, replay.Default().Work, given)); diff != "" {
		t.Errorf("with given times (-want +got):\n%s", diff)
	}
	measured.StateEvery, measured.AtNotice = 0, false
	want.States, want.NoLast = of(time.Hour), true
	if diff := cmp.Diff(want, workOf(measured, replay.Default().Work, given)); diff != "" {
		t.Errorf("saves nothing (-want +got):\n%s", diff)
	}
}

// TestMain lets the test binary be the worker of a trial.
func TestMain(m *testing.M) {
	labworker.WorkerMain()
	m.Run()
}

// TestReplayMeasures measures a program and replays jobs of 2 h that work as it does.
func TestReplayMeasures(t *testing.T) {
	proof.Only(t, "it measures in real time")
	need.NotOn(t, "windows", "its program is stopped by SIGTERM")
	need.Command(t, "python3")
	program, err := filepath.Abs("../../internal/lab/trial/testdata/good.py")
	if err != nil {
		t.Fatal(err)
	}
	kinds := filepath.Join(t.TempDir(), "kinds.json")
	text, err := json.Marshal(map[string]any{"kinds": map[string]any{"good": map[string]any{"command": []string{"python3", program, "30"}}}})
	if err == nil {
		err = os.WriteFile(kinds, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := printed(t, "replay", "--kinds-file", kinds, "--job-time=2h", "--evictions=1", "--noticed=0.5", "-o", "json")
	var r replay.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	w := r.Scenario.Work
	if w.Length != of(2*time.Hour) || w.States.Duration < time.Millisecond || w.States.Duration > 10*time.Second || !w.Beside ||
		w.Save.Duration != 25*time.Millisecond {
		t.Errorf("measured %+v, want small states in jobs of 2 h", w)
	}
	if r.Sudden.Runs == 0 || r.Hours.Useful == 0 {
		t.Errorf("report %+v", r)
	}
}

func TestMeasureFlags(t *testing.T) {
	var out bytes.Buffer
	for want, args := range map[string][]string{
		"give --kinds-file":          {"replay", "--payload=x"},
		"--kinds-file and the":       {"replay", "--compare", "scenario.json", "--kinds-file=kinds.json"},
		"no-such-file.json":          {"replay", "--kinds-file=no-such-file.json"},
		"exclude each other":         {"replay", "--kinds-file=no-such-file.json", "--checkpoint-interval=1m", "--no-checkpoints"},
		"choose from --prices":       {"replay", "--size=D2as_v5"},
		"--prices no-such-file.json": {"replay", "--prices=no-such-file.json"},
	} {
		if err := run(args, &out); cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("lab %s = %v, want a wrong configuration with %q", strings.Join(args, " "), err, want)
		}
	}
}

func TestOffer(t *testing.T) {
	const west = `{"size":"Standard_D2as_v5","region":"westeurope","currency":"EUR","spot":0.02,"regular":0.1,` +
		`"evicted_percent_an_hour":"10-15"}`
	const north = `{"size":"Standard_D2as_v5","region":"northeurope","currency":"USD","spot_usd":0.03,"evicted_percent_an_hour":"20+"}`
	const unknown = `{"size":"Standard_E2as_v5","region":"westeurope","currency":"EUR","spot":0.04}`
	for name, row := range map[string]struct {
		text  string
		flags []string
		want  replay.Fleet // prices and rate alone
		err   string
	}{
		"the only one": {west, nil, replay.Fleet{Rate: 0.15, Price: 0.02, Dear: 0.1}, ""},
		"chosen": {west + "\n\n" + unknown + "\n" + north, []string{"--region=NorthEurope"}, replay.Fleet{Rate: 0.25, Price: 0.03},
			""},
		"size without case":  {west + "\n" + unknown, []string{"--size=d2AS_v5"}, replay.Fleet{Rate: 0.15, Price: 0.02, Dear: 0.1}, ""},
		"given":              {west, []string{"--evictions=2", "--price=7", "--regular-price=9"}, replay.Fleet{Rate: 2, Price: 7, Dear: 9}, ""},
		"several":            {west + "\n" + north, nil, replay.Fleet{}, "choose with --size and --region"},
		"none":               {west + "\n" + `{"gap":"quota"}`, []string{"--size=E8s_v5"}, replay.Fleet{}, "no price of the given"},
		"no class":           {unknown, nil, replay.Fleet{}, "give --evictions"},
		"no class, recorded": {unknown, []string{"--lives=gcp-2019"}, replay.Fleet{Rate: replay.Default().Fleet.Rate, Price: 0.04}, ""},
		"another file":       {west + "\nprices", nil, replay.Fleet{}, "line 2 is not what spotctl prices"},
	} {
		file := filepath.Join(t.TempDir(), "prices.json")
		if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := parsed(t, append([]string{"replay", "--prices", file}, row.flags...)...).Replay.scenario(t.Context())
		if row.err != "" {
			if cli.Code(err) != cli.ExitConfig || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v, want %q", name, err, row.err)
			}
			continue
		}
		got := replay.Fleet{Rate: s.Fleet.Rate, Price: s.Fleet.Price, Dear: s.Fleet.Dear}
		if diff := cmp.Diff(row.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}
