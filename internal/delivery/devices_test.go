package delivery_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/job"
)

// oneDevice is a machine with a device that jobs of kind k need. Kind b needs two.
type oneDevice struct {
	mu      sync.Mutex
	user    string
	changed chan struct{}
}

func (d *oneDevice) Count() int { return 1 }

func (d *oneDevice) Wanted(kind string, _ []byte) int { return map[string]int{"k": 1, "b": 2}[kind] }

func (d *oneDevice) Reserve(kind, id string, _ []byte) (release func(), changed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case kind == "b":
		return nil, nil, errors.New("two are needed")
	case kind != "k":
		return nil, nil, nil
	case d.user != "":
		return nil, d.changed, nil
	}
	d.user, d.changed = id, make(chan struct{})
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.user = ""
		close(d.changed)
	}, nil, nil
}

// TestDevices: a job waits for a device and gets it when it is free; another one meanwhile is put
// back untouched, jobs that need none run beside them, and a job that needs more is for other machines.
func TestDevices(t *testing.T) {
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, 5*time.Second) })
	onBench(t, job.Kinds{"k": run, "b": run, "plain": run}, func(t *testing.T, b *bench) {
		waits := map[string]func() delivery.Result{}
		begun := time.Now()
		for _, row := range [][2]string{{"first", "k"}, {"next", "k"}, {"third", "k"}, {"big", "b"}, {"other", "plain"}} {
			b.Put(row[0], row[1], "")
			waits[row[0]] = b.begin(b.claim())
			time.Sleep(time.Millisecond)
		}
		if diff := cmp.Diff(map[string]int{"b/2": 1}, b.Sight().TooLarge); diff != "" {
			t.Errorf("jobs that need more (-want +got):\n%s", diff)
		}
		for _, row := range []struct {
			id    string
			want  delivery.Result
			after time.Duration
		}{
			{"third", delivery.NotRun, 0}, {"big", delivery.Unfit, 0}, {"other", delivery.Ran, 5 * time.Second},
			{"first", delivery.Ran, 5 * time.Second}, {"next", delivery.Ran, 10 * time.Second},
		} {
			if got, took := waits[row.id](), time.Since(begun).Truncate(time.Second); got != row.want || took != row.after {
				t.Errorf("job %s: %d after %s, want %d after %s", row.id, got, took, row.want, row.after)
			}
		}
		if b.Record("third").Status != "" || b.Record("big").Status != "" {
			t.Errorf("records = %q, %q, want none", b.Record("third").Status, b.Record("big").Status)
		}
	}, func(b *bench) { b.config.Devices = &oneDevice{} })
}

// TestStopWithoutADevice: a job that waits for a device is released when the worker stops, and what the
// job before it had is free.
func TestStopWithoutADevice(t *testing.T) {
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Hour) })
	device := &oneDevice{}
	onBench(t, job.Kinds{"k": run}, func(t *testing.T, b *bench) {
		wait := b.beginMany(2)
		time.Sleep(3 * time.Second)
		b.drainNow(10 * time.Second)
		if wait(); b.visible() != 2 || b.counter.WithPrefix("started") != 1 || device.user != "" {
			t.Errorf("%d visible messages, %d starts, and %q has the device; want both released, one started, and none", b.visible(),
				b.counter.WithPrefix("started"), device.user)
		}
	}, func(b *bench) { b.config.Devices = device })
}
