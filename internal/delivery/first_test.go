package delivery

import (
	"testing"
	"time"
)

// TestBacklogIsLong: a queue has a long backlog if its workers need more than 10 s for the messages
// that none of them has.
func TestBacklogIsLong(t *testing.T) {
	for _, row := range []struct {
		name string
		backlog
		want bool
	}{
		{"200 jobs before one slot", backlog{200, 1, 1, 4 * time.Second}, true},
		{"as many as are started in 10 s", backlog{1 + 10, 1, 1, time.Second}, false},
		{"one more", backlog{1 + 11, 1, 1, time.Second}, true},
		{"many short jobs", backlog{8 + 7999, 8, 1, 10 * time.Millisecond}, false},
		{"more short jobs", backlog{8 + 8001, 8, 1, 10 * time.Millisecond}, true},
		{"all of them run", backlog{64, 64, 1, time.Hour}, false},
		{"one waits behind hours of work", backlog{65, 64, 1, time.Hour}, true},
		{"fewer than there are slots", backlog{3, 64, 1, time.Hour}, false},
		{"slots shared by four queues", backlog{16 + 17, 64, 4, 10 * time.Second}, true},
		{"slots of one queue", backlog{64 + 17, 64, 1, 10 * time.Second}, false},
		{"run time unknown", backlog{1000, 1, 1, 0}, false},
	} {
		if got := row.isLong(); got != row.want {
			t.Errorf("%s: isLong of %+v = %t, want %t", row.name, row.backlog, got, row.want)
		}
	}
}
