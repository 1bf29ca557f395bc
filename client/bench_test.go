package client

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// benchmarked returns a deployment on a loopback connection, as a program has one.
func benchmarked(b *testing.B) *Client {
	b.Helper()
	server := storage.New(storage.Options{})
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Close() })
	c, err := Open(Options{ConnectionString: connection})
	if err == nil {
		err = c.Create(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return c
}

// BenchmarkPutMany puts b.N jobs. Run it with -benchtime=100000x, and compare
// BenchmarkRawLoop.
func BenchmarkPutMany(b *testing.B) {
	c := benchmarked(b)
	if sum, err := c.PutMany(b.Context(), numbered(b.N, ""), PutOptions{}); err != nil || sum.Put != b.N {
		b.Fatal(sum, err)
	}
}

// BenchmarkRawLoop puts as many messages with the SDK alone, as many at once.
func BenchmarkRawLoop(b *testing.B) {
	c := benchmarked(b)
	raw := c.stores.Account.Queue(c.stores.Names.Queue)
	text, err := queue.Envelope{ID: "00000000-0000-0000-0000-000000000000", Kind: "k"}.Encode()
	if err != nil {
		b.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for range b.N {
		group.Go(func() error {
			_, err := raw.EnqueueMessage(b.Context(), text, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}
