package connections

import (
	"net"
	"net/http"
	"slices"
	"testing"
)

// TestLimit: the oldest connection without a request goes first, a connection
// that is being answered stays, and where all others are being answered the oldest goes.
func TestLimit(t *testing.T) {
	conns := make([]net.Conn, 5)
	for i := range conns {
		conns[i], _ = net.Pipe()
		defer conns[i].Close()
	}
	c := &set{limit: 2}
	for i, step := range []struct {
		conn    int
		state   http.ConnState
		surplus int // -1: none
	}{
		{0, http.StateNew, -1},
		{1, http.StateNew, -1},
		{0, http.StateActive, -1},
		{2, http.StateNew, 1}, // 0 is busy
		{1, http.StateActive, -1},
		{1, http.StateClosed, -1}, // it was forgotten
		{2, http.StateActive, -1},
		{3, http.StateNew, 0}, // all others are busy
		{0, http.StateClosed, -1},
		{4, http.StateNew, 3},
		{2, http.StateClosed, -1},
		{4, http.StateClosed, -1},
	} {
		got := c.update(conns[step.conn], step.state)
		want := net.Conn(nil)
		if step.surplus >= 0 {
			want = conns[step.surplus]
		}
		if got != want {
			t.Fatalf("step %d: connection %d becomes %s: closes %d, want %d", i, step.conn, step.state, slices.Index(conns, got), step.surplus)
		}
	}
	if len(c.quiet)+len(c.busy) != 0 {
		t.Errorf("connections left: %d quiet, %d busy", len(c.quiet), len(c.busy))
	}
}
