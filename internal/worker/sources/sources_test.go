package sources

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// TestTakeFrom: the order is the operator's, and the two names stand for the right queues.
func TestTakeFrom(t *testing.T) {
	a := &deployment.Stores{Queue: queue.New(nil, "q"), OnDemand: queue.New(nil, "q-ondemand")}
	got := Chosen(a, []Choice{"on-demand", "spot"})
	if len(got) != 2 || got[0] != a.OnDemand || got[1] != a.Queue {
		t.Errorf("Chosen = %v, want the on-demand queue and the queue of jobs", got)
	}
}

// TestOnlyChangesAreLogged: a worker logs one line when the number of queues changes.
func TestOnlyChangesAreLogged(t *testing.T) {
	server := storage.New(storage.Options{})
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	shards := queue.NewShards("jobs", account.Queue)
	if err := shards.Main().Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	settings := delivery.Settings{Stores: &deployment.Stores{Queue: shards.Main(), Jobs: shards}, Log: slog.New(slog.NewTextHandler(&log,
		nil))}
	s := New(&settings, []Choice{Spot}, func(context.Context) error { return nil })
	const change = "jobs are taken from another number of queues"
	if err := s.Check(t.Context()); err != nil || len(s.Taken()) != 1 || strings.Contains(log.String(), change) {
		t.Errorf("Check = %v with %d queues, want one and no line about a change:\n%s", err, len(s.Taken()), &log)
	}
	if err := shards.At(1).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := shards.Write(t.Context(), queue.ShardCounts{Put: 2, Taken: 2}); err != nil {
		t.Fatal(err)
	}
	s.update(t.Context())
	s.update(t.Context())
	if n := strings.Count(log.String(), change); n != 1 || len(s.Taken()) != 2 {
		t.Errorf("%d lines about a change to %d queues, want one about 2:\n%s", n, len(s.Taken()), &log)
	}
}
