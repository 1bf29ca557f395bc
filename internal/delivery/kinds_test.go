package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestStopBeforeAKindIsPoison: a message whose kind no worker has had for an hour, and whose record cannot be read, is released when the
// worker stops.
func TestStopBeforeAKindIsPoison(t *testing.T) {
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		b.put(queue.Envelope{ID: "a", Kind: "other", PutBackSince: time.Now().Add(-2 * time.Hour)})
		lease := b.claim()
		end := b.down(on(b.Names.Records, storage.OpGetBlobProperties))
		wait := b.begin(lease)
		time.Sleep(5 * time.Second)
		b.drainNow(10 * time.Second)
		wait()
		end()
		if n := b.counter.Of("ended released")["ended released"]; n != 1 || b.visible() != 1 || len(b.PoisonMessages()) != 0 {
			t.Errorf("released %d times, %d visible messages, %d in the poison queue; want once, one, none", n, b.visible(), len(b.PoisonMessages()))
		}
	})
}

// TestFarMoreFailures: the circuit breaker of a kind opens if far more of its jobs fail here than on other machines, although
// some succeed.
func TestFarMoreFailures(t *testing.T) {
	for name, row := range map[string]struct {
		runs  activity.Runs // elsewhere
		broke int
	}{"elsewhere none fail": {activity.Runs{Done: 200}, 1}, "elsewhere as many fail": {activity.Runs{Done: 100, Failed: 100}, 0}} {
		t.Run(name, func(t *testing.T) {
			n := 0
			kinds := handle(func(context.Context, *job.Job) ([]byte, error) {
				if n++; n%2 == 0 {
					return nil, errors.New("out of luck")
				}
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				p := b.other()
				p.Activity.Slots = 1
				p.Activity.Kinds = []activity.Kind{{Name: "k", Done: row.runs.Done, Failed: row.runs.Failed}}
				defer b.keepAlive(p)()
				for i := range 30 {
					b.Put(fmt.Sprint("job-", i), "k", "")
					b.runOne()
				}
				if got := b.counter.WithPrefix("broke"); got != row.broke {
					t.Errorf("the circuit breaker opened %d times after %d runs, want %d", got, n, row.broke)
				}
			})
		})
	}
}

// TestKindLately: a message that waited for an hour is not dead-lettered as long as a worker had its kind within the last hour.
func TestKindLately(t *testing.T) {
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		p := b.other()
		p.Kinds = []string{"other"}
		if err := b.Workers.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Minute)
		b.put(queue.Envelope{ID: "a", Kind: "other", PutBackSince: time.Now().Add(-2 * time.Hour)})
		b.runOne()
		if n := len(b.PoisonMessages()); n != 0 {
			t.Errorf("%d messages are poison, want none yet", n)
		}
		if took, _ := b.untilEnd(time.Hour, time.Second); took > 7*time.Minute || b.Record("a").Status != checkpoint.Poison {
			t.Errorf("record = %s after %s, want it poison", b.Record("a").Status, took)
		}
	})
}

// TestSampleIsShared: callers share a listing of the heartbeats as long as it is young enough for them, also a listing that failed. A
// listing that ended because its caller was stopped is none.
func TestSampleIsShared(t *testing.T) {
	const age = 30 * time.Second
	onBench(t, nil, func(t *testing.T, b *bench) {
		lists := on(b.Names.Workers, storage.OpListBlobs)
		sample := func(ctx context.Context) error {
			_, err := b.config.Fleet.Sample(ctx, age)
			return err
		}
		check := func(what string, want int, fails bool) {
			t.Helper()
			before := b.counted(storage.OpListBlobs)
			var group errgroup.Group
			for range 3 {
				group.Go(func() error { return sample(t.Context()) })
			}
			err := group.Wait()
			if got := b.counted(storage.OpListBlobs) - before; got != want || (err != nil) != fails {
				t.Errorf("%s: %d listings, error %v; want %d, an error: %t", what, got, err, want, fails)
			}
		}
		b.delay(time.Second, lists)
		stopped, stop := context.WithTimeout(t.Context(), time.Second/2)
		defer stop()
		waits := make(chan error)
		go func() { waits <- sample(stopped) }()
		if lists, waits := sample(stopped), <-waits; lists == nil || waits == nil {
			t.Errorf("samples for callers that were stopped: %v, %v; want errors", lists, waits)
		}
		check("the first", 1, false)
		time.Sleep(age - time.Second - time.Nanosecond)
		check("while it is young", 0, false)
		time.Sleep(time.Nanosecond)
		end := b.fail(http.StatusForbidden, "AuthorizationFailure", lists)
		check("once it is old", 1, true)
		end()
		time.Sleep(age - time.Nanosecond)
		check("after a listing that failed", 0, true)
		time.Sleep(time.Nanosecond)
		check("later", 1, false)
	})
}
