package queuestats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a worker's survey of one queue, in virtual time.
type rig struct {
	Survey
	queue  *queue.Queue
	server *storage.Server
	log    bytes.Buffer
	read   []string // the readings that were reported
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{server: storage.New(storage.Options{})}
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: r.server.ConnectionString(), Transport: r.server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		r.queue = queue.New(account.Queue("jobs"), "jobs")
		if err := r.queue.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Survey = Survey{
			Queues: func() []*queue.Queue { return []*queue.Queue{r.queue} }, Working: func() int { return 1 },
			MayRead: func() bool { return true }, Logs: func() bool { return true },
			Report: func(queue string, messages int, oldest time.Duration) {
				r.read = append(r.read, fmt.Sprintf("%s %d %s", queue, messages, oldest))
			},
			Jitter: retry.Jitter{Random: func(n time.Duration) time.Duration { return n / 2 }}, // every 30 s exactly
			Log:    slog.New(slog.NewJSONHandler(&r.log, nil)),
		}
		r.server.ResetCounts()
		test(t, r)
	})
}

// runFor lets the survey run for a time.
func (r *rig) runFor(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r.Run(ctx)
}

// logged returns the readings in the log.
func (r *rig) logged(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(r.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == "queue read" {
			lines = append(lines, fields)
		}
	}
	return lines
}

// TestReadings: a queue with messages costs two calls and an empty one one; a reading is
// logged every five minutes, for an empty queue too, without a time that means nothing.
func TestReadings(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		if err := r.queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "echo", EnqueuedAt: time.Now()}, 0); err != nil {
			t.Fatal(err)
		}
		put := time.Now().UTC()
		r.server.ResetCounts()
		r.runFor(t, 4*Every+time.Second)
		if got := strings.Join(r.read, ", "); got != "jobs 1 30s, jobs 1 1m0s, jobs 1 1m30s, jobs 1 2m0s" {
			t.Errorf("readings: %s", got)
		}
		if n := r.server.Counts(); n["GetQueueMetadata"] != 4 || n["PeekMessages"] != 4 {
			t.Errorf("calls: %v, want two for each reading", n)
		}
		lines := r.logged(t)
		if len(lines) != 1 || lines[0]["messages"] != 1.0 || lines[0]["since"] != put.Format(time.RFC3339) {
			t.Errorf("logged: %v, want one line with a message since %s", lines, put.Format(time.RFC3339))
		}
	})
	inBubble(t, func(t *testing.T, r *rig) {
		r.runFor(t, LogEvery+2*Every)
		lines := r.logged(t)
		if _, since := lines[0]["since"]; len(lines) != 2 || lines[0]["messages"] != 0.0 || since {
			t.Errorf("logged of an empty queue in %s: %v, want two lines without since", LogEvery+2*Every, lines)
		}
		if n := r.server.Counts(); n["PeekMessages"] != 0 {
			t.Errorf("calls: %v, want no look into an empty queue", n)
		}
	})
}

// TestWhoReads: nothing is read before the fleet's size is known, or while the worker has no
// time; a worker that takes no messages reads and logs nothing.
func TestWhoReads(t *testing.T) {
	for name, row := range map[string]struct {
		change       func(*rig)
		read, logged bool
	}{
		"a worker":           {func(*rig) {}, true, true},
		"unknown fleet":      {func(r *rig) { r.Working = func() int { return 0 } }, false, false},
		"drains":             {func(r *rig) { r.MayRead = func() bool { return false } }, false, false},
		"takes no messages":  {func(r *rig) { r.Logs = func() bool { return false } }, true, false},
		"not chosen of many": {func(r *rig) { r.Working = func() int { return 100 } }, false, false},
		"the queue is gone": {func(r *rig) {
			r.server.OnCall(func(storage.Call) storage.Fault {
				return storage.Fault{Refuse: &storage.Error{Status: 404, Code: "QueueNotFound"}}
			})
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				row.change(r)
				r.runFor(t, 3*Every)
				if read, logged := len(r.read) > 0, len(r.logged(t)) > 0; read != row.read || logged != row.logged {
					t.Errorf("read %t, logged %t, want %t, %t", read, logged, row.read, row.logged)
				}
			})
		})
	}
}

// TestChance: of a fleet of any size about as many workers are chosen.
func TestChance(t *testing.T) {
	for _, workers := range []int{1, 3, 10, 500} {
		chosen := 0
		for i := range workers {
			jitter := retry.Jitter{Random: func(n time.Duration) time.Duration { return n / time.Duration(workers) * time.Duration(i) }}
			if IsChosen(jitter, Readers, workers) {
				chosen++
			}
		}
		if want := min(workers, Readers); chosen != want {
			t.Errorf("%d of %d workers are chosen, want %d", chosen, workers, want)
		}
	}
}

// TestDenied: a queue that may not be read is asked once an hour, and that is logged.
func TestDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.server.OnCall(func(storage.Call) storage.Fault {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
		})
		r.runFor(t, 90*time.Minute)
		if n := strings.Count(r.log.String(), "queue not read for metrics: the role Storage Queue Data Reader on it is missing"); n != 2 ||
			len(r.read) != 0 {
			t.Errorf("%d lines in 90 minutes and %d readings, want 2 and none", n, len(r.read))
		}
	})
}

// TestPublish: a worker publishes what it reads, as one of so many workers of its scale set, however
// many the fleet has.
func TestPublish(t *testing.T) {
	for _, row := range []struct{ ofSet, want int }{{1, 20}, {3, 20}, {300, 0}} {
		inBubble(t, func(t *testing.T, r *rig) {
			published := 0
			r.Working = func() int { return 1000 }
			r.Publishing = func(context.Context) int { return row.ofSet }
			r.Publish = func(string, int, time.Duration) { published++ }
			r.Logs = func() bool { return false }
			r.runFor(t, 10*time.Minute+time.Second)
			if published != row.want || len(r.read) != row.want {
				t.Errorf("one of %d: published %d and reported %d readings, want %d", row.ofSet, published, len(r.read), row.want)
			}
		})
	}
}

// TestPublishedDepthHasFirst: autoscale sees the messages of the queue First with those of the queue of jobs.
func TestPublishedDepthHasFirst(t *testing.T) {
	got := map[string]int{}
	s := Survey{Jobs: "jobs", First: "jobs-first", Publish: func(queue string, messages int, _ time.Duration) { got[queue] = messages }}
	s.publish([]reading{{"jobs", 2, 0}, {"jobs-1", 1, 0}, {"jobs-first", 3, 0}})
	if want := (map[string]int{"jobs": 5, "jobs-1": 1, "jobs-first": 3}); !maps.Equal(got, want) {
		t.Errorf("published = %v, want %v", got, want)
	}
}
