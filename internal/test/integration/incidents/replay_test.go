//go:build integration

package incidents

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// inTime is how soon after its onset an incident has to raise its alert.
const inTime = 5 * time.Minute

// TestRulesAreValid: promtool accepts the rules.
func TestRulesAreValid(t *testing.T) {
	if out, err := promtool(t, "check", "rules", rules(t)); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
}

// TestIncidents replays each incident: its alert fires within five minutes, and nothing
// fires before it begins, nor in the calm time.
func TestIncidents(t *testing.T) {
	all := incidents()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			r, want := read(t, name), all[name].alert
			fired := replay(t, r, rules(t))
			onset := time.Duration(r.onset-1) * every // it begins right after a scrape
			for _, alert := range slices.Sorted(maps.Keys(fired)) {
				if after := fired[alert] - onset; want == "" || after <= 0 {
					t.Errorf("%s fires after %s, without cause", alert, fired[alert])
				} else {
					t.Logf("%s fires %s after the onset", alert, after)
				}
			}
			if at, ok := fired[all[name].not]; ok {
				t.Errorf("%s fires after %s, want it silent", all[name].not, at)
			}
			switch at, ok := fired[want]; {
			case want == "":
				t.Logf("nothing fires in %s", time.Duration(r.ticks)*every)
			case !ok:
				t.Errorf("%s does not fire", want)
			case at-onset > inTime:
				t.Errorf("%s fires %s after the onset, want at most %s", want, at-onset, inTime)
			}
		})
	}
}

// TestDerivedIncidents replays incidents that are told by few series: the recording of the calm time
// with series that were written by hand.
func TestDerivedIncidents(t *testing.T) {
	const onset = 3 * time.Minute
	for alert, more := range map[string][][2]string{
		"SpotworkerOutOfMemory": {{`spotworker_oom_kills_total{instance="spot_1"}`, "0+0x11 0+1x30"}},
		"SpotworkerStorageMissing": {{`spotworker_storage_calls_total{instance="spot_1",service="blob",operation="PutBlob",status="missing"}`,
			"0+0x11 0+2x30"}},
		"SpotworkerCrashLoop": {{`spotworker_start_timestamp_seconds{instance="spot_1"}`, "1000+0x11 1200+15x30"}},
		"SpotworkerWorkLost":  {{`spotworker_handler_seconds_total{instance="spot_9",kind="deaf",outcome="redone"}`, "0+0x11 64+32x30"}},
		"SpotworkerKindMissing": {{`spotworker_build_info{instance="spot_9"}`, "_x12 1+0x30"},
			{`spotworker_breaker_open{instance="spot_9",kind="wrok"}`, "_x12 0+0x30"}}, //nolint:misspell // an unknown kind
		"SpotworkerQueueGrows": {{`spotworker_queue_messages{instance="spot_1",queue="grown-jobs"}`, "0+0x11 0+60x30"}},
		"SpotworkerCapacityGone": {{`spotworker_state{instance="a",state="process"}`, "1+0x11 stale"},
			{`spotworker_state{instance="b",state="process"}`, "1+0x11 stale"},
			{`spotworker_state{instance="c",state="process"}`, "1+0x11 stale"},
			{`spotworker_queue_oldest_message_age_seconds{instance="spot_1",queue="q-jobs"}`, "0+0x11 0+15x30"}},
		"SpotworkerMachineFails": {{`spotworker_job_failures_total{instance="a",kind="x",class="error"}`, "0+0x11 0+1x30"},
			{`spotworker_job_duration_seconds_count{instance="a",kind="x"}`, "0+0x42"},
			{`spotworker_job_duration_seconds_count{instance="b",kind="x"}`, "0+2x42"},
			{`spotworker_job_failures_total{instance="b",kind="x",class="error"}`, "0+0x42"}},
	} {
		t.Run(alert, func(t *testing.T) {
			r := read(t, "calm")
			r.series = slices.DeleteFunc(r.series, func(s [2]string) bool {
				return strings.HasPrefix(s[0], `spotworker_oom_kills_total{instance="spot_1"`)
			})
			r.series = append(r.series, more...)
			at, ok := replay(t, r, rules(t))[alert]
			if !ok || at < onset || at > onset+inTime {
				t.Errorf("%s fires: %t, %s after the onset, want within %s", alert, ok, at-onset, inTime)
			}
			t.Logf("%s fires %s after the onset", alert, at-onset)
		})
	}
}

// TestNotScaled: a queue that grows for 15 minutes raises an alert, unless workers are added.
func TestNotScaled(t *testing.T) {
	const onset, ticks = 20 * time.Minute, 200
	for _, want := range []bool{true, false} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			r := recorded{ticks: ticks, series: [][2]string{
				{`spotworker_queue_messages{instance="a",queue="q-jobs"}`, "0x80 0+20x120"},
				{`spotworker_delivery_outcomes_total{instance="a",outcome="committed"}`, "0+1x200"},
				{`spotworker_build_info{instance="a"}`, "1x200"}, {`spotworker_build_info{instance="b"}`, "1x200"},
			}}
			if !want {
				r.series = append(r.series, [2]string{`spotworker_build_info{instance="c"}`, "_x80 1x120"},
					[2]string{`spotworker_build_info{instance="d"}`, "_x120 1x80"}, [2]string{`spotworker_build_info{instance="e"}`, "_x160 1x40"})
			}
			at, fires := replay(t, r, rules(t))["SpotworkerNotScaled"]
			if fires != want || want && (at < onset+10*time.Minute || at > onset+17*time.Minute) {
				t.Errorf("SpotworkerNotScaled fires: %t, %s after the onset, want %t within 10 to 17 minutes", fires, at-onset, want)
			}
		})
	}
}

// rules is the file of the rules.
func rules(t *testing.T) string {
	return filepath.Join(repository.Root(t), "infra", "prometheus", "alerts.yml")
}

var firing = regexp.MustCompile(`alertname="(\w+)"`)

// replay returns the alerts that fire during a recording, and when each does first.
// promtool compares results with expected ones; expecting none, it prints the others.
func replay(t *testing.T, r recorded, rules string) map[string]time.Duration {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%q]\nevaluation_interval: %s\ntests:\n  - interval: %s\n    input_series:\n", rules, every, every)
	for _, s := range r.series {
		fmt.Fprintf(&b, "      - {series: %s, values: %q}\n", inYAML(s[0]), s[1])
	}
	b.WriteString("    promql_expr_test:\n")
	for tick := range r.ticks {
		fmt.Fprintf(&b, "      - {expr: 'ALERTS{alertstate=\"firing\"}', eval_time: %s}\n", time.Duration(tick)*every)
	}
	fired := map[string]time.Duration{}
	at := time.Duration(0)
	for line := range strings.Lines(test(t, b.String())) {
		if _, when, ok := strings.Cut(line, "time: "); ok {
			var err error
			if at, err = time.ParseDuration(strings.Trim(when, ", \n")); err != nil {
				t.Fatalf("promtool prints %q: %v", line, err)
			}
		}
		for _, name := range firing.FindAllStringSubmatch(line, -1) {
			if _, known := fired[name[1]]; !known {
				fired[name[1]] = at
			}
		}
	}
	return fired
}

// inYAML returns a text as a string of YAML.
func inYAML(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// test runs a test of promtool and returns its output. A file that it does not understand
// fails t.
func test(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := promtool(t, "test", "rules", path)
	if err != nil && !strings.Contains(out, "got:") {
		t.Fatalf("%v:\n%s", err, out)
	}
	return out
}

func promtool(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	command := need.Command(t, "promtool")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, command, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("promtool %q: %v:\n%s", args, ctx.Err(), text)
	}
	return string(text), err
}
