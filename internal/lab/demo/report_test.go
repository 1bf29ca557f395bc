package demo

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/text"
)

var update = flag.Bool("update", false, "update the golden files")

func TestReport(t *testing.T) {
	h, end := goodRun()
	good := audit(h, end)
	good.Workers = 5
	lateOnce := good
	lateOnce.ServedToStopped.Duration = 62 * time.Millisecond
	bad := findings{
		Jobs: 24, Bytes: 293 << 20, Workers: 5, Committed: 22, CommittedTwice: 1, Lost: 1, WrongDigests: 1, Messages: 1, Unseen: 2,
		Duplicates: 1, BadMessages: []badMessageEnd{{"job whose blob is missing", false}}, StaleWrites: 3, Backwards: 1, Miscounted: 1,
		Frozen:    frozenWorkers{VMs: 1, Held: 2, Fenced: 1, ThawedToFenced: measuredTime{5 * second, 1, 1}},
		Evictions: 2, Kills: 1, TwiceAfterNotice: redoneBytes{4 << 20, 0}, TwiceAfterKill: redoneBytes{8 << 20, 4 << 20},
		TwiceAfterFreeze: redoneBytes{8 << 20, 0}, TwiceOtherwise: 1536,
		OldestUnsaved: 4 * second, SlowestSave: 3 * ms, LongestDuplicate: measuredTime{9 * second, 1, 0},
		AnnouncedToStopped: measuredTime{2345 * ms, 1, 0},
		Missing:            []string{"usr/lib/a: lost, there is no message of it", "usr/lib/b: running, last on spot_3"},
	}
	calm := findings{Jobs: 1, Committed: 1, Workers: 1}
	settings := settings{Workers: 4, JobsAtOnce: 2, Interval: 2 * second, Files: 12, Bandwidth: "at 2.7 MiB/s each"}
	for name, findings := range map[string]findings{"kept": good, "late": lateOnce, "broken": bad, "calm": calm} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			newReport(findings, settings).Write(&out)
			golden := filepath.Join("testdata", "report_"+name+".golden")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			for line := range strings.Lines(out.String()) {
				if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("line has %d columns, want at most 80: %s", n, line)
				}
			}
		})
	}
}

func TestOnlyTimesHaveAMargin(t *testing.T) {
	for _, test := range []struct {
		row  text.Promise
		want string
	}{
		{within("", measuredTime{2 * second, 1, 0}, 2*second), text.Kept},
		{within("", measuredTime{2*second + 1, 1, 0}, 2*second), text.Late},
		{within("", measuredTime{3 * second, 1, 0}, 2*second), text.Late},
		{within("", measuredTime{3*second + 1, 2, 0}, 2*second), text.Broken},
		{within("", measuredTime{}, 2*second), text.Broken},
		{within("", measuredTime{second, 1, 1}, 2*second), text.Broken},
		{inTurn("", measuredTime{second, 1, 0}, ""), text.Kept},
		{inTurn("", measuredTime{second, 1, 1}, ""), text.Broken},
		{atLeast("", 1, 1), text.Kept},
		{atLeast("", 0, 1), text.Broken},
		{atMost("", 4, 4), text.Kept},
		{atMost("", 5, 4), text.Broken},
		{text.Exactly("", 4, 4), text.Kept},
		{text.Exactly("", 3, 4), text.Broken},
		{text.Exactly("", 5, 4), text.Broken},
	} {
		if test.row.Verdict != test.want {
			t.Errorf("%s of %s = %s, want %s", test.row.Measured, test.row.Promised, test.row.Verdict, test.want)
		}
	}
}
