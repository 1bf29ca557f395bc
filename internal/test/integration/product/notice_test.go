//go:build integration

package product

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// TestNoticeOverLoopback is promise 5 on real clocks and sockets: 100 evictions
// of 10 workers at random moments, each from its becoming visible at the
// metadata endpoint to the end of the handler's context. It takes about half a
// minute.
func TestNoticeOverLoopback(t *testing.T) {
	const vms, each = 10, 10
	metadata := imds.New(imds.Options{})
	service := httptest.NewServer(metadata.Handler())
	t.Cleanup(service.Close)

	var took []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range vms {
		vm := fmt.Sprintf("vm_%d", n)
		work := &watched{began: make(chan struct{}, 1), ended: make(chan time.Time, 1)}
		s := open(t, account(t))
		put(t, s, "job", "watched", "1")
		start(t, s, metadata, service.URL, vm, job.Kinds{"watched": work})
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for range each {
				<-work.began
				time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
				announced := time.Now()
				id, err := metadata.SimulateEviction(vm)
				if err != nil {
					t.Error(err)
					return
				}
				ended := <-work.ended
				metadata.Withdraw(id)
				mu.Lock()
				took = append(took, ended.Sub(announced))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	t.Logf("%d evictions, visible at the endpoint to context cancelled: p50 %s, p99 %s, max %s", len(took), p50, p99,
		took[len(took)-1])
	if p50 > 1050*time.Millisecond { // the last ones depend on how busy the machine is
		t.Errorf("p50 = %s, want at most 1.05s", p50)
	}
	for n := range vms {
		if stats := metadata.VM(fmt.Sprintf("vm_%d", n)).Stats(); stats.BusiestSecond > 5 || stats.Throttled > 0 {
			t.Errorf("vm_%d sent %d requests in a second, %d were refused, want at most 5 and none", n, stats.BusiestSecond, stats.Throttled)
		}
	}
}

// account starts a storage account of one worker's own, whose job comes back to
// it, and returns its connection string.
func account(t *testing.T) string {
	t.Helper()
	server := storage.New(storage.Options{})
	t.Cleanup(func() { _ = server.Close() })
	connection, err := server.Listen(storage.Addresses{Blob: "127.0.0.1:0", Queue: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

// watched is a handler that works until it is stopped, and records when it
// began and when its context ended.
type watched struct {
	began chan struct{}
	ended chan time.Time
}

func (w *watched) Run(ctx context.Context, _ *job.Job) ([]byte, error) {
	w.began <- struct{}{}
	<-ctx.Done()
	w.ended <- time.Now()
	return nil, context.Cause(ctx)
}
