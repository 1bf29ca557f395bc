package presence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/fleet/activity"
)

// TestCountLacks: at most eight kinds are named, the kinds with most jobs, and the rest is
// added up: names come from messages, and a heartbeat has little room.
func TestCountLacks(t *testing.T) {
	jobs := map[string]int{"few": 1, "also-few": 1}
	for i := range 8 {
		jobs[fmt.Sprintf("kind-%d", i)] = 10 + i
	}
	lacks := CountLacks(jobs)
	if len(lacks) != maxLacks+1 || lacks[0] != (KindCount{"kind-7", 17}) || lacks[maxLacks] != (KindCount{MoreKinds, 2}) {
		t.Errorf("CountLacks = %v, want eight kinds, and two jobs of others", lacks)
	}
	if diff := cmp.Diff(lacks, parseLacks(formatLacks(lacks))); diff != "" {
		t.Errorf("lacks (-written +read)\n%s", diff)
	}
}

// TestFindingsAreTolerant: findings that cannot be read are left out, and their number is
// bounded.
func TestFindingsAreTolerant(t *testing.T) {
	if got := parseLacks("a,b=,c=-1,d=x,=4,e=2"); len(got) != 1 || got[0] != (KindCount{"e", 2}) {
		t.Errorf("parseLacks = %v, want e alone", got)
	}
	if got := parseLacks(strings.Repeat("a=1,", 100)); len(got) > maxLacks+1 {
		t.Errorf("parseLacks = %d kinds, want at most %d", len(got), maxLacks+1)
	}
	for _, text := range []string{"", "1", "1,2", "1,2,3,4,5", "x,1,2,0,0,0", "-3,1,2,0,0,0"} {
		if got := parseCalls(text); got.Count != 0 {
			t.Errorf("parseCalls(%q) = %+v, want none", text, got)
		}
	}
	if got := parseCalls("10,20,-1,11,1,0,later"); got != (activity.CallReport{Count: 10, Slow: 10, Denied: 10, Throttled: 1}) {
		t.Errorf("parseCalls = %+v, want at most as many of each as calls", got)
	}
	if got := parseTrouble("blind=-1&clock=x&crashes=2&size=9e9"); got != (Trouble{Crashes: 2}) {
		t.Errorf("parseTrouble = %+v, want the crashes alone", got)
	}
	if got := parseReadings("jobs,5;,1,2;jobs,7,60,later"); len(got) != 1 || got[0].Messages != 7 {
		t.Errorf("parseReadings = %v, want one", got)
	}
	if got := parseReadings(strings.Repeat("jobs,1,1;", 500)); len(got) != maxReadings {
		t.Errorf("parseReadings = %d readings, want %d", len(got), maxReadings)
	}
	var f Findings
	if f.parseSilent("none,a"); f.Silent != 0 || f.SilentJob != "" {
		t.Errorf("parseSilent = %+v, want none", f)
	}
}
