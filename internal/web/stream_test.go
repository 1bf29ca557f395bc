package web

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
)

// TestOutageReads: during an outage an open page makes no further reads, and sends an event only for
// news.
func TestOutageReads(t *testing.T) {
	const every = 100 * time.Millisecond
	r := setup(t, every, poisoned("b", client.StatusRunning))
	next := r.follow(t, "/")
	r.down.Store(true)
	for !strings.Contains(next()["read"], "Storage stopped") {
		continue
	}
	time.Sleep(3 * every) // the last state gets old
	before, began := r.reads.Load(), time.Now()
	events := make(chan map[string]string)
	go func() { events <- next() }()
	select {
	case changed := <-events:
		t.Errorf("the outage goes on, but an event has %v", changed)
	case <-time.After(10 * every):
		defer func() { r.down.Store(false); <-events }()
	}
	r.get(t, "/")
	if n, most := r.reads.Load()-before, int64(time.Since(began)/every)+2; n > most || n == 0 {
		t.Errorf("%d reads of storage in %s, want 1 to %d", n, time.Since(began).Round(time.Millisecond), most)
	}
}

// TestManyStreams: streams beyond the limit send the page and end, with the time of the next try. When
// one of the others ends, the next one stays.
func TestManyStreams(t *testing.T) {
	r := setup(t, time.Hour, poisoned("b", client.StatusRunning))
	for range mostStreams - 1 {
		r.follow(t, "/")()
	}
	_, leave := r.feed.join()
	for range 2 {
		answer := make(chan *httptest.ResponseRecorder)
		go func() { answer <- r.get(t, "/stream?page=/") }()
		select {
		case a := <-answer:
			if body := a.Body.String(); !strings.HasPrefix(body, "retry: 3600000\ndata: {\"ends\":true,") || !strings.Contains(body, `"tiles":`) {
				t.Errorf("the stream is %q", body)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a stream beyond the limit stays")
		}
	}
	leave()
	next := r.follow(t, "/")
	next()
	r.down.Store(true)
	r.feed.again()
	if read := next()["read"]; !strings.Contains(read, "Storage stopped") {
		t.Errorf("the stream that stays sends %q", read)
	}
}
