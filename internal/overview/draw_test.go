package overview

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview/table"
)

var update = flag.Bool("update", false, "update the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)

// busy is a deployment in which everything happens at once.
func busy() Snapshot {
	before := func(d time.Duration) time.Time { return noon.Add(-d) }
	workers := []client.Worker{
		{Name: "vmss_1-0123abcd-0", State: "process", Jobs: 2, Version: "1.2.3", Age: 5 * time.Second, StartedAt: before(3 * time.Hour)},
		{Name: "vmss_2-0123abcd-0", State: "shutdown", Version: "1.2.4", Age: 9 * time.Second, StartedAt: before(time.Minute),
			LastEvent: &client.Event{Type: "Preempt", SeenAt: before(20 * time.Second)},
			LastDrain: &client.Drain{EndedAt: before(19 * time.Second), Jobs: 4, Released: 2, Done: 1, Left: 1, Took: 412345 * time.Microsecond}},
		{Name: "vmss_3-0123abcd-0", State: "process", Jobs: 1, Version: "1.2.3", Age: 4 * time.Minute},
		{Name: "vmss_5-0123abcd-0", State: "process", Asked: "pause", Version: "1.2.3", Age: time.Second},
		{Name: "vmss_4-0123abcd-0", State: "stopped", Version: "1.2.2", Age: 26 * time.Hour},
	}
	workers[0].Activity = activityOf(4, client.KindActivity{
		Kind: "render", Done: 400, Failed: 2, Committed: 30 * time.Minute, FailedTime: time.Minute,
		Durations: []client.DurationCount{{UpTo: 500 * time.Millisecond, Count: 300}, {UpTo: 4 * time.Second, Count: 90},
			{UpTo: 3 * time.Minute, Count: 10}},
	}, client.KindActivity{Kind: "digest", Done: 1, Redone: time.Second, Durations: []client.DurationCount{{UpTo: 2 * time.Hour, Count: 1}}})
	workers[1].Activity = activityOf(4, client.KindActivity{Kind: "render", HandedOver: 4 * time.Minute})
	workers[2].Activity = activityOf(4, client.KindActivity{Kind: "render", Failed: 37, FailedTime: 37 * time.Second})
	workers[2].VM = "vmss_3"
	workers[0].Queues = []string{"spotworker-jobs", "spotworker-jobs-ondemand"}
	s := Snapshot{
		Waits: map[string]time.Duration{"spotworker-jobs": 4 * time.Minute, "spotworker-poison": 30 * time.Hour},
		At:    noon, Took: 300 * time.Millisecond,
		Steering: client.Steering{
			Paused: &client.Mark{At: before(5 * time.Minute), By: "spotctl@desk", Reason: "bad batch"},
			Drained: []client.Mark{{Name: "vmss_1-0123abcd-0", At: before(time.Hour), By: "me"},
				{Name: "gone-0123abcd-0", At: before(time.Hour)}},
			Quarantined: []client.Mark{{Name: "vmss_9", At: before(time.Minute)}},
			PausedKinds: []client.Mark{{Name: "render", At: before(time.Minute)}},
		},
		Queues: client.Queues{
			Jobs:     client.Queue{Name: "spotworker-jobs", Exists: true, Messages: 1204},
			OnDemand: client.Queue{Name: "spotworker-jobs-ondemand", Exists: true, Messages: 8},
			Poison:   client.Queue{Name: "spotworker-poison", Exists: true, Messages: 2},
		},
		Jobs: Jobs{
			ByStatus: map[client.Status]int{
				client.StatusRunning: 3, client.StatusOpen: 4, client.StatusDone: 1234567, client.StatusPoison: 1, client.StatusUnknown: 1,
			},
			DoneRecently: 412,
			Running: []client.Job{
				{ID: "stranded", Kind: "render", Status: client.StatusRunning, Owner: "vmss_3-0123abcd-0", UpdatedAt: before(4 * time.Minute),
					ReadAt: noon, RunTime: 90 * time.Second},
				{ID: "film-7_frame-000123", Kind: "render", Status: client.StatusRunning, Owner: "vmss_1-0123abcd-0", Fraction: 0.5,
					Text: "tile \x1b[31m 8 of 16", UpdatedAt: before(10 * time.Second), ReadAt: noon, RunTime: 20 * time.Minute},
				{ID: "new", Kind: "digest", Status: client.StatusRunning, Owner: "vmss_1-0123abcd-0", UpdatedAt: noon, ReadAt: noon},
			},
		},
	}
	s.Workers = workers
	return s
}

// activity returns ten minutes of activity of a worker with that many slots.
func activityOf(slots int, kinds ...client.KindActivity) *client.Activity {
	all := time.Duration(slots) * Window
	return &client.Activity{Slots: slots, Handler: all / 2, Around: all / 10, Idle: all * 4 / 10, Kinds: kinds}
}

func TestDraw(t *testing.T) {
	blind := busy()
	blind.Jobs, blind.Faults = Jobs{},
		[]Fault{{Part: PartJobs, Err: errors.New("access denied: the role Storage Blob Data Reader is missing")}}
	for name, row := range map[string]struct {
		snapshot      Snapshot
		width, height int
	}{
		"wide": {busy(), 160, 0}, "usual": {busy(), 80, 24}, "high": {busy(), 120, 40}, "narrow": {busy(), 40, 40}, "low": {busy(), 80, 8},
		"empty": {Snapshot{At: noon, Queues: client.Queues{Jobs: client.Queue{Name: "spotworker-jobs"}}}, 80, 24}, "no role": {blind, 100, 0},
		"tiny": {busy(), 8, 3},
	} {
		t.Run(name, func(t *testing.T) {
			lines := Draw(row.snapshot, row.width, row.height)
			got := strings.Join(lines, "\n") + "\n"
			golden := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("picture (-want +got):\n%s", diff)
			}
			if row.height > 0 && len(lines) > row.height {
				t.Errorf("%d lines for a terminal of %d", len(lines), row.height)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > max(row.width, 26) { // the width that the remaining columns need
					t.Errorf("line has %d columns, want at most %d: %s", n, row.width, line)
				}
			}
		})
	}
}

func TestShareRows(t *testing.T) {
	tables := func(rows ...int) (parts []part) {
		for _, n := range rows {
			p := part{Table: table.New(table.Column{Name: "A"})}
			for range n {
				p.Add("x")
			}
			parts = append(parts, p)
		}
		return parts
	}
	for _, row := range []struct {
		height, used int
		parts        []part
		want         []int
	}{
		{0, 5, tables(3, 50, 0, 7), []int{3, Rows, 0, 7}},
		{40, 10, tables(3, 2, 50, 50), []int{3, 2, 8, 7}}, // and one line each for the count of omitted rows
		{24, 10, tables(3, 2, 3, 2), []int{3, 2, 3, 2}},
		{24, 10, tables(3, 9, 9, 9), []int{3, 2, 1, 1}},
		{24, 21, tables(3, 9, 9, 9), []int{1, 0, 0, 0}},
		{24, 20, tables(3, 1, 9, 9), []int{3, 0, 0, 0}},
		{24, 30, tables(3, 9, 9, 9), []int{0, 0, 0, 0}},
	} {
		got := shareRows(row.height, row.used, row.height >= roomy || row.height == 0, row.parts)
		if !slices.Equal(got, row.want) {
			t.Errorf("shareRows(%d, %d) = %v, want %v", row.height, row.used, got, row.want)
		}
	}
}
