package delivery_test

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
)

// putCrashed enqueues a job whose last workers died, each soon after its claim. They had run for a while if they were steady.
func (b *bench) putCrashed(id string, exits int, steady bool) {
	b.T.Helper()
	e := queue.Envelope{ID: id, Kind: "k", Resume: true}
	b.put(e)
	var messageID string
	seen, err := b.Queue.Peek(b.T.Context(), 32)
	if err != nil {
		b.T.Fatal(err)
	}
	for _, m := range seen {
		if found, err := queue.Decode(m.Text); err == nil && found.ID == id {
			messageID = m.ID
		}
	}
	if messageID == "" {
		b.T.Fatalf("no message of %s", id)
	}
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: e.Work(), MessageID: messageID, Steady: steady}
	for range exits {
		var err error
		if found := b.Record(id); found.Status == "" {
			_, err = b.Records.Create(b.T.Context(), d, "vm_9-boot-1")
		} else {
			_, err = b.Records.Acquire(b.T.Context(), d, found, "vm_9-boot-1")
		}
		if err != nil {
			b.T.Fatal(err)
		}
	}
}

// keepAlive writes a heartbeat every 15 s.
func (b *bench) keepAlive(p presence.Presence) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for b.Workers.Write(context.Background(), p) == nil {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Second):
			}
		}
	}()
	time.Sleep(time.Second)
	return func() { close(stop); <-ended }
}
