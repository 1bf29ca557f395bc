package drain

import (
	"testing"
	"time"
)

// TestBacklogIsLong: a queue has a long backlog if its workers need more than 10 s for the messages
// that none of them has.
func TestBacklogIsLong(t *testing.T) {
	for _, row := range []struct {
		name string
		Backlog
		want bool
	}{
		{"200 jobs before one slot", Backlog{200, 1, 1, 4 * time.Second}, true},
		{"as many as are started in 10 s", Backlog{1 + 10, 1, 1, time.Second}, false},
		{"one more", Backlog{1 + 11, 1, 1, time.Second}, true},
		{"many short jobs", Backlog{8 + 7999, 8, 1, 10 * time.Millisecond}, false},
		{"more short jobs", Backlog{8 + 8001, 8, 1, 10 * time.Millisecond}, true},
		{"all of them run", Backlog{64, 64, 1, time.Hour}, false},
		{"one waits behind hours of work", Backlog{65, 64, 1, time.Hour}, true},
		{"fewer than there are slots", Backlog{3, 64, 1, time.Hour}, false},
		{"slots shared by four queues", Backlog{16 + 17, 64, 4, 10 * time.Second}, true},
		{"slots of one queue", Backlog{64 + 17, 64, 1, 10 * time.Second}, false},
		{"run time unknown", Backlog{1000, 1, 1, 0}, false},
	} {
		if got := row.IsLong(); got != row.want {
			t.Errorf("%s: IsLong of %+v = %t, want %t", row.name, row.Backlog, got, row.want)
		}
	}
}
