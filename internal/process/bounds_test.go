package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/sandbox"
	"github.com/spotworker/spotworker/job"
)

// TestLineBudget: a burst, then so many lines per second, and the burst again
// after a pause.
func TestLineBudget(t *testing.T) {
	var b lineLimit
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	ask := func(times int) (allowed, dropped int) {
		for range times {
			ok, lost := b.allow(now)
			if dropped += lost; ok {
				allowed++
			}
		}
		return allowed, dropped
	}
	for _, row := range []struct {
		after             time.Duration
		ask, allowed, was int
	}{
		{0, 10, 10, 0},
		{0, 1000, linesBurst - 10, 0},
		{time.Second / linesPerSec, 10, 1, 1000 - (linesBurst - 10)},
		{time.Second, 100, linesPerSec, 9},
		{time.Hour, 1000, linesBurst, 100 - linesPerSec},
		{time.Millisecond, 5, 0, 0},
	} {
		now = now.Add(row.after)
		if allowed, dropped := ask(row.ask); allowed != row.allowed || dropped != row.was {
			t.Errorf("%d lines %s later: %d allowed, %d said to be dropped, want %d, %d", row.ask, row.after, allowed, dropped, row.allowed, row.was)
		}
	}
	if got := b.dropped(); got != 1000-linesBurst+5 {
		t.Errorf("dropped at the end = %d, want %d", got, 1000-linesBurst+5)
	}
}

// TestReserve: the time kept back for a last look is never all there is of a
// usual budget, and never long.
func TestReserve(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		0: shortestReserve, 500 * time.Millisecond: shortestReserve, 5 * time.Second: 625 * time.Millisecond, time.Minute: longestReserve,
	} {
		if got := reserve(left); got != want {
			t.Errorf("reserve(%s) = %s, want %s", left, got, want)
		}
	}
}

func TestStopNote(t *testing.T) {
	at := time.Date(2026, 3, 9, 13, 0, 0, 0, time.FixedZone("", 3600))
	for want, note := range map[string]stopNote{
		`{"reason":"evicted","seconds_left":4.375,"not_before":"2026-03-09T12:00:00Z"}`: noteOf(&job.Stop{Reason: job.Evicted, NotBefore: at}, 4375*time.Millisecond),
		`{"reason":"shutdown","seconds_left":0}`:                                        noteOf(&job.Stop{Reason: job.Shutdown, Err: errors.New("x")}, -time.Second),
	} {
		if got, err := json.Marshal(note); string(got) != want || err != nil {
			t.Errorf("stop file = %s, %v, want %s", got, err, want)
		}
	}
}

func TestDiskWatch(t *testing.T) {
	k := newKeeper(t)
	k.save(t, "12345")
	now := time.Now()
	f := &folder{dir: k.dir}
	d := &diskWatch{folder: f, limit: 4 << 10}
	defer d.stop()
	// measure looks until the measurement that is due has ended.
	measure := func(d *diskWatch, now time.Time) error {
		err := d.check(now)
		for err == nil && d.result != nil {
			time.Sleep(time.Millisecond)
			err = d.check(now)
		}
		return err
	}
	if err := measure(d, now); err != nil {
		t.Errorf("look at a small folder = %v, want nil", err)
	}
	appendTo(t, k.dir+"/large", strings.Repeat("x", 4<<10+1))
	if err := measure(d, now.Add(diskInterval/2)); err != nil {
		t.Errorf("look before its time = %v, want nil", err)
	}
	if err := measure(d, now.Add(time.Hour)); err == nil {
		t.Error("look at a folder that is too large = nil, want an error")
	}
	if err := measure(&diskWatch{folder: f}, now); err != nil {
		t.Errorf("look without a limit = %v, want nil", err)
	}
}

// TestDiskCountsEntries: folders and empty files count, and what lies too deep to
// be counted counts as too much.
func TestDiskCountsEntries(t *testing.T) {
	for name, row := range map[string]struct {
		fill func(dir string) error
		want func(n int64) bool
	}{
		"25 folders": {func(dir string) (err error) {
			for i := range 25 {
				err = errors.Join(err, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i)), 0o700))
			}
			return err
		}, func(n int64) bool { return n == 25*folderCounts }},
		"25 empty files": {func(dir string) (err error) {
			for i := range 25 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
			}
			return err
		}, func(n int64) bool { return n == 25*entryCounts }},
		"too deep": {func(dir string) error {
			name := strings.Repeat("d", 200)
			inner := filepath.Join(dir, name)
			err := os.Mkdir(inner, 0o700)
			for range 30 {
				outer := filepath.Join(dir, "outer")
				err = errors.Join(err, os.Mkdir(outer, 0o700), os.Rename(inner, filepath.Join(outer, name)), os.Rename(outer, inner))
			}
			return err
		}, func(n int64) bool { return runtime.GOOS != "linux" || n == math.MaxInt64 }},
	} {
		dir := filepath.Join(t.TempDir(), "job")
		if err := errors.Join(os.Mkdir(dir, 0o700), row.fill(dir)); err != nil {
			t.Fatal(err)
		}
		if n := (&folder{dir: dir}).size(1<<40, new(atomic.Bool)); !row.want(n) {
			t.Errorf("%s count %d bytes", name, n)
		}
		if err := sandbox.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	}
}
