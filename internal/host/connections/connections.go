// Package connections bounds the open connections of a server, so that clients which open many
// and send nothing lock nobody out.
package connections

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Limit bounds the open connections of a server. A new one beyond the limit
// closes the oldest without an active request, or the oldest if all others have one. So
// neither idle connections nor requests that never end can lock out others, as they could
// with a limit on accepting.
func Limit(s *http.Server, limit int) {
	s.ConnState = (&set{limit: limit}).track
}

// set holds the open connections of a server.
type set struct {
	limit int

	mu    sync.Mutex
	quiet []net.Conn // no complete request header was read, oldest first
	busy  []net.Conn // a request is active
}

// track is the ConnState hook of an [http.Server], which calls it for a new
// connection before it accepts the next.
func (c *set) track(conn net.Conn, state http.ConnState) {
	if surplus := c.update(conn, state); surplus != nil {
		_ = surplus.Close() // its goroutine ends with a read error
	}
}

// update records a change of state and returns a connection to close, or nil. It
// no longer tracks that connection.
func (c *set) update(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.quiet = append(c.quiet, conn)
	case http.StateActive:
		move(conn, &c.quiet, &c.busy)
	case http.StateIdle:
		move(conn, &c.busy, &c.quiet)
	case http.StateClosed, http.StateHijacked:
		remove(conn, &c.quiet)
		remove(conn, &c.busy)
	}
	if len(c.quiet)+len(c.busy) <= c.limit {
		return nil
	}
	oldest := &c.quiet
	if len(c.quiet) <= 1 && len(c.busy) > 0 { // the new one alone
		oldest = &c.busy
	}
	surplus = (*oldest)[0]
	*oldest = slices.Delete(*oldest, 0, 1)
	return surplus
}

func move(conn net.Conn, from, to *[]net.Conn) {
	if remove(conn, from) {
		*to = append(*to, conn)
	}
}

func remove(conn net.Conn, from *[]net.Conn) bool {
	at := slices.Index(*from, conn)
	if at >= 0 {
		*from = slices.Delete(*from, at, at+1)
	}
	return at >= 0
}
