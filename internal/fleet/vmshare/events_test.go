package vmshare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)

// TestReservationEnds: a reserved acknowledgement becomes free when the worker's process
// ends, also if the same instance starts again, and after 75 s if it does not.
func TestReservationEnds(t *testing.T) {
	for name, row := range map[string]struct {
		then func(t *testing.T, a, b *Dir) *Dir // returns who acknowledges
		want error
	}{
		"in use":       {func(_ *testing.T, _, b *Dir) *Dir { return b }, ErrTaken},
		"in use, late": {func(_ *testing.T, _, b *Dir) *Dir { time.Sleep(reservationLimit); return b }, ErrTaken},
		"own":          {func(_ *testing.T, a, _ *Dir) *Dir { return a }, ErrTaken},
		"frozen":       {func(_ *testing.T, _, b *Dir) *Dir { time.Sleep(reservationLimit + 1); return b }, nil},
		"ended":        {func(_ *testing.T, a, b *Dir) *Dir { a.Close(); return b }, nil},
		"restarted, another asks": {func(t *testing.T, a, b *Dir) *Dir {
			a.Close()
			open(t, a.Path, "a")
			return b
		}, ErrTaken},
		"restarted": {func(t *testing.T, a, _ *Dir) *Dir {
			a.Close()
			time.Sleep(time.Second)
			return open(t, a.Path, "a")
		}, nil},
		"with no name": {func(t *testing.T, a, b *Dir) *Dir {
			e := Event{ID: "E", NotBefore: noon, Ready: []string{"a"}, Acknowledged: true, By: "../x", ReservedAt: time.Now(), At: time.Now()}
			if err := a.setEvents([]Event{e}); err != nil {
				t.Fatal(err)
			}
			return b
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			synctest.Test(t, func(t *testing.T) {
				a, b := open(t, path, "a"), open(t, path, "b")
				event := Event{ID: "E", NotBefore: noon}
				if err := a.Acknowledge(t.Context(), event, true); err != nil {
					t.Fatal(err)
				}
				who := row.then(t, a, b)
				if err := who.Acknowledge(t.Context(), event, true); !errors.Is(err, row.want) {
					t.Errorf("Acknowledge = %v, want %v", err, row.want)
				}
				if err := b.Acknowledge(t.Context(), event, true); !errors.Is(err, ErrTaken) {
					t.Errorf("Acknowledge afterwards = %v, want ErrTaken", err)
				}
			})
		})
	}
}

// An event that ends nothing is acknowledged when all workers with jobs are ready.
func TestReadyWithJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	a, b := open(t, path, "a"), open(t, path, "b")
	doneA, _, errA := a.BeginWork(t.Context())
	doneB, _, errB := b.BeginWork(t.Context())
	defer doneA()
	defer doneB()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	freeze := Event{ID: "E", NotBefore: noon}
	if err := a.Acknowledge(t.Context(), freeze, false); err == nil || !strings.Contains(err.Error(), "instance b") {
		t.Errorf("Acknowledge = %v, want to wait for b", err)
	}
	if err := b.Ready(t.Context(), []Event{freeze}); err != nil {
		t.Fatal(err)
	}
	later := Event{ID: "E", NotBefore: noon.Add(time.Minute)}
	if err := a.Acknowledge(t.Context(), later, false); err == nil {
		t.Error("Acknowledge an event that was put off = nil, want to wait for b")
	}
	if err := a.Acknowledge(t.Context(), freeze, false); err != nil {
		t.Errorf("Acknowledge = %v, want nil: all are ready", err)
	}
}

// However a worker that begins meets a worker that acknowledges, either the first learns
// of the event or the second waits for it.
func TestBeginAgainstAcknowledge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	a, b := open(t, path, "a"), open(t, path, "b")
	for i := range 200 {
		id := string(rune('A'+i%26)) + time.Duration(i).String()
		acknowledged := make(chan error, 1)
		go func() { acknowledged <- a.Acknowledge(t.Context(), Event{ID: id}, true) }()
		done, left, err := b.BeginWork(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := find(left, id) >= 0
		if ackErr := <-acknowledged; (ackErr == nil) != told {
			t.Fatalf("round %d: Acknowledge = %v while the other was told %t, want exactly one of the two to succeed", i, ackErr, told)
		}
		done()
	}
}

func TestDamagedEventsStartEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d := open(t, path, "0")
	if err := os.WriteFile(filepath.Join(path, eventsFile), []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	done, left, err := d.BeginWork(t.Context())
	done()
	if err != nil || len(left) != 0 {
		t.Errorf("BeginWork = %v, %v, want no events", left, err)
	}
	if err := d.Ready(t.Context(), []Event{{ID: "E"}}); err != nil {
		t.Errorf("Ready = %v", err)
	}
}
