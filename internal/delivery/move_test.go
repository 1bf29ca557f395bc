package delivery

import (
	"testing"

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
