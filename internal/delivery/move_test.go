package delivery

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

func TestMoves(t *testing.T) {
	for _, row := range []struct {
		name                 string
		after, interruptions int
		want                 bool
	}{
		{"often enough", 3, 3, true},
		{"more than often enough, as after a move that failed", 3, 7, true},
		{"not yet", 3, 2, false},
		{"left no record", 1, 0, false},
		{"never", 0, 100, false},
	} {
		if got := moves(row.after, row.interruptions); got != row.want {
			t.Errorf("%s: moves(%d, %d) = %t, want %t", row.name, row.after, row.interruptions, got, row.want)
		}
	}
}

func TestMayMove(t *testing.T) {
	for _, row := range []struct {
		name     string
		stop     *job.Stop
		onDemand bool
		want     bool
	}{
		{"evicted", &job.Stop{Reason: job.Evicted}, false, true},
		{"told to end", &job.Stop{Reason: job.Shutdown}, false, true},
		{"drained by an operator", &job.Stop{Reason: job.Drained}, false, true},
		{"there already", &job.Stop{Reason: job.Evicted}, true, false},
		{"took a break", nil, false, false},
		{"another worker has the message", &job.Stop{Reason: job.Lost}, false, false},
	} {
		if got := mayMove(row.stop, row.onDemand); got != row.want {
			t.Errorf("%s: mayMove(%v, %t) = %t, want %t", row.name, row.stop, row.onDemand, got, row.want)
		}
	}
}

// TestJudgeWaiting: a job that waits moves when the rest of its work and two changeovers do not
// fit into its time, whether it began or not, and not again soon after a release that was to
// move it.
func TestJudgeWaiting(t *testing.T) {
	const m = time.Minute
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	r := &Runner{Parts: Parts{Settings: &Settings{Changeover: 10 * m}}}
	began := func(change func(*checkpoint.Record)) checkpoint.Record {
		r := checkpoint.Record{Generation: 1, CreatedAt: now.Add(-70 * m), ModifiedAt: now.Add(-5 * m), RunTime: m, StateHash: "00"}
		change(&r)
		return r
	}
	as := func(*checkpoint.Record) {}
	for _, row := range []struct {
		name          string
		due, estimate time.Duration
		record        checkpoint.Record
		want          bool
	}{
		{"new, with time", 51 * m, 30 * m, checkpoint.Record{}, false},
		{"new, without", 49 * m, 30 * m, checkpoint.Record{}, true},
		{"new, without an estimate", 19 * m, 0, checkpoint.Record{}, true},
		{"new, out of reach", 14 * m, 30 * m, checkpoint.Record{}, false},
		{"resumes, without time for as long a loss", 100 * m, 30 * m, began(as), true},
		{"resumes, with time", 200 * m, 30 * m, began(as), false},
		{"failed, and lost no time to VMs", 100 * m, 30 * m, began(func(r *checkpoint.Record) { r.FailuresTotal = 1 }), false},
		{"waits for long", 100 * m, 30 * m, began(func(r *checkpoint.Record) { r.FailuresTotal, r.ModifiedAt = 1, now.Add(-69*m) }), true},
		{"was to move just now", 49 * m, 30 * m, began(func(r *checkpoint.Record) { r.MoveReason = "soon" }), false},
		{"was to move long ago", 49 * m, 30 * m, began(func(r *checkpoint.Record) { r.MoveReason, r.ModifiedAt = "soon", now.Add(-11*m) }), true},
		{"below the line, with time to wait", 120 * m, 30 * m, began(func(r *checkpoint.Record) {
			r.CreatedAt,
				r.FailuresTotal = now.Add(-10*time.Hour), 1
		}), false},
	} {
		e := queue.Envelope{Deadline: now.Add(row.due), Estimate: row.estimate}
		if v, got := r.judgeWaiting(e, row.record, now.Add(-24*time.Hour), now); got != row.want {
			t.Errorf("%s: judgeWaiting = %t (%s, %s), want %t", row.name, got, v.Risk, v.Why, row.want)
		}
	}
}

// TestMoveRest: after a move that failed, none is tried for movePause.
func TestMoveRest(t *testing.T) {
	var m rest
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	if !m.mayTry(now) {
		t.Error("mayTry before any failure = false, want true")
	}
	m.failed(now)
	for _, row := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {movePause - 1, false}, {movePause, true}, {time.Hour, true}} {
		if got := m.mayTry(now.Add(row.after)); got != row.want {
			t.Errorf("mayTry %s after a failure = %t, want %t", row.after, got, row.want)
		}
	}
}
