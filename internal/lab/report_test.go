package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	f, end := goodRun()
	good := audit(&f, end)
	good.Workers = 5
	lateOnce := good
	lateOnce.ServedToStopped.Duration = 62 * time.Millisecond
	bad := Findings{
		Jobs: 24, Bytes: 293 << 20, Workers: 5, Committed: 22, CommittedTwice: 1, Lost: 1, WrongDigests: 1, Messages: 1, Unseen: 2,
		Evictions: 2, Kills: 1, TwiceAfterNotice: 4 << 20, TwiceAfterKill: 8 << 20, UnsavedAtKill: 4 << 20, TwiceOtherwise: 1536,
		OldestUnsaved: 4 * second, SlowestSave: 3 * time.Millisecond,
		AnnouncedToStopped: Measured{2345 * time.Millisecond, true},
		Missing:            []string{"usr/lib/a: lost, there is no message of it", "usr/lib/b: running, last in the hands of spot_3"},
	}
	for name, findings := range map[string]Findings{"kept": good, "late": lateOnce, "broken": bad, "calm": {Jobs: 1, Committed: 1, Workers: 1}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			NewReport(findings, 2*second).Write(&out)
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
		row  row
		want verdict
	}{
		{within("", Measured{2 * second, true}, 2*second), kept},
		{within("", Measured{2*second + 1, true}, 2*second), late},
		{within("", Measured{3 * second, true}, 2*second), late},
		{within("", Measured{3*second + 1, true}, 2*second), broken},
		{within("", Measured{}, 2*second), broken},
		{atMost("", 4, 4), kept},
		{atMost("", 5, 4), broken},
		{exactly("", 4, 4), kept},
		{exactly("", 3, 4), broken},
		{exactly("", 5, 4), broken},
	} {
		if test.row.verdict != test.want {
			t.Errorf("%s of %s = %s, want %s", test.row.measured, test.row.promised, test.row.verdict, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := wrap("three words here and averyveryverylongone end", 11)
	want := []string{"three words", "here and", "averyveryverylongone", "end"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrapped (-want +got):\n%s", diff)
	}
}
