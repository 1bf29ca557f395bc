package delivery

import (
	"testing"

	"github.com/spotworker/spotworker/job"
)

func TestMoves(t *testing.T) {
	evicted, ended, lost := &job.Stop{Reason: job.Evicted}, &job.Stop{Reason: job.Shutdown}, &job.Stop{Reason: job.Lost}
	for _, row := range []struct {
		name                 string
		after, interruptions int
		stop                 *job.Stop
		onDemand             bool
		want                 bool
	}{
		{"often enough", 3, 3, evicted, false, true},
		{"more than often enough, as after a move that failed", 3, 7, evicted, false, true},
		{"told to end", 1, 1, ended, false, true},
		{"not yet", 3, 2, evicted, false, false},
		{"left no record", 1, 0, evicted, false, false},
		{"never", 0, 100, evicted, false, false},
		{"there already", 1, 5, evicted, true, false},
		{"took a break", 1, 5, nil, false, false},
		{"another worker has the message", 1, 5, lost, false, false},
	} {
		if got := moves(row.after, row.interruptions, row.stop, row.onDemand); got != row.want {
			t.Errorf("%s: moves(%d, %d, %v, %t) = %t, want %t", row.name, row.after, row.interruptions, row.stop, row.onDemand, got, row.want)
		}
	}
}
