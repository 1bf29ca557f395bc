package web

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/client/clienttest"
	"github.com/spotworker/spotworker/internal/overview"
)

// TestFirstPage: the first page has queues and workers while the jobs are read, and the jobs with the
// next event of its stream. A page of jobs waits for them.
func TestFirstPage(t *testing.T) {
	listed := make(chan struct{})
	part := overview.Snapshot{At: time.Now(), Reading: true,
		Queues: client.Queues{Jobs: client.Queue{Name: "the-queue", Exists: true, Messages: 7}}}
	r := setupOf(t, Config{Client: clienttest.New(t, nil), Explain: error.Error, Every: time.Hour,
		Read: func(ctx context.Context, each func(client.Job), early func(overview.Snapshot)) (overview.Snapshot, error) {
			early(part)
			select {
			case <-listed:
			case <-ctx.Done():
				return part, ctx.Err()
			}
			each(client.Job{ID: "the-job", Status: client.StatusDone})
			all := part
			all.Reading, all.Jobs.ByStatus = false, map[client.Status]int{client.StatusDone: 1}
			return all, nil
		}})
	first := r.get(t, "/").Body.String()
	for _, want := range []string{`id="q-the-queue"`, "The jobs are being read", "<noscript>"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first page lacks %s:\n%s", want, first)
		}
	}
	for _, not := range []string{"Nothing here yet", "No problems found", "No job runs", "No job ended"} {
		if strings.Contains(first, not) {
			t.Errorf("before the jobs are read, the page says: %s", not)
		}
	}
	next := r.follow(t, "/")
	next()
	jobs := make(chan *httptest.ResponseRecorder)
	go func() { jobs <- r.get(t, "/jobs") }()
	close(listed)
	if changed := next(); !strings.Contains(changed["tiles"], "1 in all") || !strings.Contains(changed["running"], "No job runs") {
		t.Errorf("when the jobs are read, the stream sends %q", changed)
	}
	if page := (<-jobs).Body.String(); !strings.Contains(page, `id="j-the-job"`) {
		t.Errorf("the page of jobs did not wait for them:\n%s", page)
	}
}
