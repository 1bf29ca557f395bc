package web

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/overview"
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
		t.Errorf("the outage continues, but an event has %v", changed)
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
		case <-time.After(2 * time.Minute): // a busy machine is slow, not stuck
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

// TestGroupsKeepTheirPlaces: while a page is open, groups keep their order whatever their counts, and a new
// group follows them. After a rest the most frequent is first again.
func TestGroupsKeepTheirPlaces(t *testing.T) {
	var jobs []client.Job
	f := newFeed(time.Hour, func(_ context.Context, each func(client.Job), _ func(overview.Snapshot)) (overview.Snapshot, error) {
		for _, j := range jobs {
			each(j)
		}
		return overview.Snapshot{At: time.Now()}, nil
	})
	read := func(counts map[string]int) (order string) {
		jobs = nil
		for reason, n := range counts {
			for range n {
				jobs = append(jobs, client.Job{ID: "job", Kind: "render", Reason: reason, Status: client.StatusPoison})
			}
		}
		f.once(t.Context())
		v, _ := f.now()
		for _, g := range v.givenUp {
			order += g.Reason
		}
		return order
	}
	for i, row := range []struct {
		counts map[string]int
		want   string
	}{
		{map[string]int{"a": 3, "b": 2, "c": 1}, "abc"},
		{map[string]int{"a": 1, "b": 2, "c": 3}, "abc"},
		{map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, "abced"},
		{map[string]int{"a": 1, "c": 3, "d": 6, "e": 5}, "aced"},
		{map[string]int{"b": 9, "a": 1, "c": 3, "d": 6}, "acdb"},
	} {
		if got := read(row.counts); got != row.want {
			t.Errorf("read %d has the groups %s, want %s", i, got, row.want)
		}
	}
	f.used = time.Now().Add(-idleAfter)
	if !f.rests() {
		t.Fatal("a feed without a page does not rest")
	}
	if got := read(map[string]int{"a": 1, "b": 2, "c": 3}); got != "cba" {
		t.Errorf("after a rest the groups are %s, want cba", got)
	}
	if got := read(map[string]int{"a": 4, "b": 2, "c": 3}); got != "cba" {
		t.Errorf("the next read has the groups %s, want cba", got)
	}
}
