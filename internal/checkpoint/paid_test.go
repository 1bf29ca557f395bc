package checkpoint

import (
	"testing"
	"time"
)

// Every write records the time that the job's handlers took, that of earlier
// deliveries included. What a claim did after its last write is not known to its
// successor.
func TestRunTimeAddsUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		first := b.store.Fresh(ours, "worker-1")
		if err := first.Touch(t.Context(), Snapshot{}); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t).RunTime; got != 0 {
			t.Errorf("paid before the handler was called = %s, want 0", got)
		}
		watch := stopwatch()
		first.CountTime(watch)
		time.Sleep(90 * time.Second)
		if err := first.Save(t.Context(), Snapshot{State: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		if got := b.read(t).RunTime; got != 90*time.Second {
			t.Errorf("paid after 90 s = %s, want that", got)
		}
		time.Sleep(time.Minute) // and then it dies without a word
		if got := first.RunTime(); got != 150*time.Second {
			t.Errorf("Paid of the first claim = %s, want 2m30s", got)
		}

		second, err := b.store.Acquire(t.Context(), ours, b.read(t), "worker-2")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // it restores the state, which is not the handler's time
		second.CountTime(stopwatch())
		time.Sleep(10*time.Second + 300*time.Microsecond)
		if err := second.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := b.read(t).RunTime, 100*time.Second; got != want {
			t.Errorf("run time at the end = %s, want %s: recorded by the first, and the second's", got, want)
		}
	})
}

func stopwatch() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
