package vmshare

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
)

// sent is when requests were sent, by the virtual clock.
type sent struct {
	mu    sync.Mutex
	times []time.Time
}

func (s *sent) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Now())
}

// busiest is the most requests in any window of that length.
func (s *sent) busiest(window time.Duration) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.times, time.Time.Compare)
	first := 0
	for i, at := range s.times {
		for at.Sub(s.times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Four workers that start at the same moment, and want far more than there is,
// get five requests a second together. Each gets its polls, at worst one in a
// window instead of one in a second.
func TestWorkersShareOneBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		var all, polls sent
		var running sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, name := range []string{"0", "1", "2", "3"} {
			budget := open(t, path, name).Budget()
			for range 3 { // requests that can wait, as fast as they may
				running.Go(func() {
					for budget.Wait(ctx, preempt.Later) == nil {
						all.now()
					}
				})
			}
			running.Go(func() {
				for next := time.Now(); budget.Wait(ctx, preempt.Poll) == nil; next = next.Add(time.Second) {
					all.now()
					polls.now()
					time.Sleep(time.Until(next.Add(time.Second)))
				}
			})
		}
		running.Wait()
		if got := all.busiest(time.Second); got != requestsMost {
			t.Errorf("requests in the busiest second = %d, want %d", got, requestsMost)
		}
		least, most := int(4*20*time.Second/requestsWindow)-4, 4*20
		if got := len(polls.times); got < least || got > most {
			t.Errorf("polls of four workers in 20s = %d, want %d to %d", got, least, most)
		}
		if rest := len(all.times) - len(polls.times); rest == 0 {
			t.Error("nothing else was sent in 20s, want what polls leave")
		}
	})
}

// The file's content decides how long the first request waits.
func TestFirstRequest(t *testing.T) {
	full := `{"boot":"boot","sent":[3600000000000,3600000000000,3600000000000,3600000000000,3600000000000]}`
	for name, row := range map[string]struct {
		content string
		want    time.Duration
	}{
		"new":                   {"", 0},
		"in use":                {full, requestsWindow},
		"in use, long ago":      {strings.ReplaceAll(full, "3600000000000", "3590000000000"), 0},
		"of another start":      {strings.ReplaceAll(full, `"boot":"boot"`, `"boot":"other"`), 0},
		"cut off":               {full[:40], requestsWindow},
		"not ours":              {"hello", requestsWindow},
		"far in the future":     {strings.ReplaceAll(full, "3600000000000", "7200000000000"), requestsWindow},
		"too many":              {strings.Replace(full, "[", "[3600000000000,", 1), requestsWindow},
		"out of order":          {`{"boot":"boot","sent":[3600000000000,1]}`, requestsWindow},
		"longer than any of us": {full + strings.Repeat(" ", 2*maxFile), requestsWindow},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			synctest.Test(t, func(t *testing.T) {
				d := open(t, path, "0")
				if err := os.WriteFile(d.file(requestsFile), []byte(row.content), 0o600); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := d.Budget().Wait(t.Context(), preempt.Poll); err != nil || time.Since(begin) != row.want {
					t.Errorf("first request after %s, %v, want %s", time.Since(begin), err, row.want)
				}
				if content, err := os.ReadFile(d.file(requestsFile)); err != nil || !bytes.Contains(content, []byte(`"boot":"boot"`)) ||
					len(content) > 200 {
					t.Errorf("file = %.100q, %v, want it repaired", content, err)
				}
			})
		})
	}
}

// A process that slept through its slot takes another.
func TestLateRequestTakesAnotherSlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		d := open(t, path, "0")
		var frozen atomic.Int64
		virtual := d.Clock
		d.Clock = func() time.Duration { return virtual() + time.Duration(frozen.Load()) }
		for range requestsMost {
			if err := d.Budget().Wait(t.Context(), preempt.Poll); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			time.Sleep(requestsWindow / 2)
			frozen.Store(int64(10 * time.Second)) // passes before its slot is used
		}()
		if err := d.Budget().Wait(t.Context(), preempt.Poll); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(d.file(requestsFile))
		if err != nil {
			t.Fatal(err)
		}
		slots := d.budget.parse(content, d.Clock())
		if last := slots.Sent[len(slots.Sent)-1]; d.Clock()-last > lateness {
			t.Errorf("the slot used is %s old, want one of now", d.Clock()-last)
		}
	})
}

// A frozen worker that holds the file does not blind the others: each keeps to
// its share until it can be had again.
func TestHeldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := open(t, path, "0")
		d.Log = slog.New(slog.NewTextHandler(&out, nil))
		holder, err := take(filepath.Join(path, requestsFile))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 4 {
			if err := d.Budget().Wait(t.Context(), preempt.Poll); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("4 requests took %s, want about one a second", took)
		}
		holder.release()
		if err := d.Budget().Wait(t.Context(), preempt.Poll); err != nil {
			t.Fatal(err)
		}
		if log := out.String(); strings.Count(log, "cannot be used") != 1 || strings.Count(log, "can be used again") != 1 {
			t.Errorf("log = %s, want one line for each change", log)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		d := open(t, path, "0")
		gone := errors.New("gone")
		for _, prepare := range []func(){
			func() { // no slot
				if err := os.WriteFile(d.file(requestsFile), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			func() { // no file
				holder, err := take(d.file(requestsFile))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(holder.release)
			},
		} {
			prepare()
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				time.Sleep(100 * time.Millisecond)
				cancel(gone)
			}()
			begin := time.Now()
			if err := d.Budget().Wait(ctx, preempt.Later); !errors.Is(err, gone) || time.Since(begin) > 200*time.Millisecond {
				t.Errorf("Wait = %v after %s, want the cause after 100ms", err, time.Since(begin))
			}
		}
	})
}
