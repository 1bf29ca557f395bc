package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
)

// TestLinesOfALog: missing lines are counted before the deliveries, and within and at the end of
// one.
func TestLinesOfALog(t *testing.T) {
	l := logOf(checkpoint.Record{}, joblog.Parse([]byte("-1\n# 2 2026-03-09T12:00:00.000Z w-2\n-2\no 1000 three\n-4\ne 2000 eight\n-5\n"+
		"# 3 2026-03-09T13:00:00.000Z w-3\no 0 one\n")))
	noon := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	want := []LogLine{
		{LeftOut: 1},
		{Delivery: 2, Worker: "w-2", Number: 1, LeftOut: 2},
		{Delivery: 2, Worker: "w-2", Number: 3, At: noon.Add(time.Second), Source: "stdout", Text: "three"},
		{Delivery: 2, Worker: "w-2", Number: 4, LeftOut: 4},
		{Delivery: 2, Worker: "w-2", Number: 8, At: noon.Add(2 * time.Second), Source: "stderr", Text: "eight"},
		{Delivery: 2, Worker: "w-2", Number: 9, LeftOut: 5},
		{Delivery: 3, Worker: "w-3", Number: 1, At: noon.Add(time.Hour), Source: "stdout", Text: "one"},
	}
	if diff := cmp.Diff(want, l.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// longLog leaves a job with more log lines than its record holds, and returns what writes the
// log.
func (b *rig) longLog(t *testing.T, id string) (*checkpoint.Claim, func()) {
	t.Helper()
	claim := b.seed(t, id, StatusRunning)
	log := joblog.NewKeeper(b.stores.Logs, joblog.DefaultSize).Open(id, claim.Record().CreatedAt, 1, "worker-1", "")
	for n := range 100 {
		log.Add(joblog.Stdout, fmt.Appendf(nil, "%100d", n))
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Log = log.Tail(); return f })
	return claim, func() {
		if err := log.WriteLast(context.Background(), time.Minute); err != nil {
			t.Error(err)
		}
	}
}

// TestLogIsAwaited: a worker writes the record first, so a log that lacks lines is read again for
// ten seconds after that, and no longer.
func TestLogIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for id, row := range map[string]struct {
			age, written time.Duration // of the record at the call; of the log after the call
			took         time.Duration
			whole        bool
		}{
			"soon":     {0, 2*time.Second + 250*time.Millisecond, 2*time.Second + 500*time.Millisecond, true},
			"never":    {0, time.Hour, 10 * time.Second, false},
			"older":    {7 * time.Second, time.Hour, 3 * time.Second, false},
			"long-ago": {time.Minute, time.Hour, 0, false},
		} {
			claim, write := b.longLog(t, id)
			if err := claim.Commit(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(row.age)
			wrote := make(chan struct{})
			time.AfterFunc(row.written, func() { write(); close(wrote) })
			began := time.Now()
			l, err := b.Log(t.Context(), id)
			if whole := len(l.Lines) == 100; err != nil || whole != row.whole || l.Lines[0].LeftOut > 0 == whole {
				t.Errorf("%s: Log = %d lines, %v, want all: %t", id, len(l.Lines), err, row.whole)
			}
			if took := time.Since(began); took != row.took {
				t.Errorf("%s: Log took %s, want %s", id, took, row.took)
			}
			<-wrote
		}
		claim, _ := b.longLog(t, "ends")
		if err := claim.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(1250*time.Millisecond, func() { cancel(enough) })
		if _, err := b.Log(ctx, "ends"); !errors.Is(err, enough) {
			t.Errorf("Log whose context ends = %v, want its cause", err)
		}
	})
}

// TestLogOfACancelledJob: its last lines are in the blob, even if its record has a whole log.
func TestLogOfACancelledJob(t *testing.T) {
	b := setup(t)
	claim := b.seed(t, "a", StatusRunning)
	log := joblog.NewKeeper(b.stores.Logs, joblog.DefaultSize).Open("a", claim.Record().CreatedAt, 1, "worker-1", "")
	log.Add(joblog.Stdout, []byte("first"))
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Log = log.Tail(); return f })
	if err := claim.Save(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Cancel(t.Context(), []string{"a"}, CancelOptions{}, func(r ActionResult) error { return r.Err }); err != nil {
		t.Fatal(err)
	}
	log.Add(joblog.Stdout, []byte("last "+strings.Repeat("x", 2000)))
	if err := log.WriteLast(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	l, err := b.Log(t.Context(), "a")
	if err != nil || len(l.Lines) != 2 || !strings.HasPrefix(l.Lines[1].Text, "last") {
		t.Errorf("Log of a cancelled job = %+v, %v, want its last line too", l.Lines, err)
	}
}
