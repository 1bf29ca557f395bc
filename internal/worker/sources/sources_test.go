package sources

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// TestTakeFrom: the order is the operator's, and the two names stand for the right queues.
func TestTakeFrom(t *testing.T) {
	a := &deployment.Stores{Queue: queue.New(nil, "q"), OnDemand: queue.New(nil, "q-ondemand")}
	got := Chosen(a, []Choice{"on-demand", "spot"})
	if len(got) != 2 || got[0] != a.OnDemand || got[1] != a.Queue {
		t.Errorf("Chosen = %v, want the on-demand queue and the queue of jobs", got)
	}
}

// TestOnlyChangesAreLogged: a worker that starts with several accounts logs one line with
// all of their queues, and one when their number changes.
func TestOnlyChangesAreLogged(t *testing.T) {
	var log bytes.Buffer
	c := Config{
		TakeFrom: []Choice{Spot}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Check: func(context.Context, *deployment.Stores) error { return nil },
	}
	for _, name := range []string{"", "second", "third"} {
		server := storage.New(storage.Options{})
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		shards := queue.NewShardsIn(name, "jobs", account.Queue)
		if err := shards.Main().Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Accounts = append(c.Accounts, &deployment.Stores{In: name, Queue: shards.Main(), Jobs: shards})
	}
	s := New(c)
	const change = "jobs are taken from another number of queues"
	if err := s.Check(t.Context()); err != nil || len(s.Taken()) != 3 || strings.Count(log.String(), change) != 1 {
		t.Errorf("Check = %v with %d queues, want those of 3 accounts and one line about them:\n%s", err, len(s.Taken()), &log)
	}
	second := c.Accounts[1].Jobs
	if err := second.At(1).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(t.Context(), queue.ShardCounts{Put: 2, Taken: 2}); err != nil {
		t.Fatal(err)
	}
	s.update(t.Context())
	s.update(t.Context())
	if n := strings.Count(log.String(), change); n != 2 || len(s.Taken()) != 4 {
		t.Errorf("%d lines about a change to %d queues, want one more about 4:\n%s", n, len(s.Taken()), &log)
	}
}
