package fleets

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/job"
)

// noise counts the lines of a worker's log that are logged by default, which is without
// debug.
type noise struct {
	lines, warnings    int
	most, mostWarnings int            // in one minute
	texts              map[string]int // lines by level and message
}

// noiseOf counts the worker's log lines since begun, without lines of these levels and
// messages.
func noiseOf(p *rig.Process, t *testing.T, begun time.Time, without []string) noise {
	t.Helper()
	n, minutes, warnings := noise{texts: map[string]int{}}, map[int]int{}, map[int]int{}
	for _, line := range p.Log.All() {
		at, err := time.Parse(time.RFC3339Nano, line["time"].(string))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(line["level"], " ", line["msg"])
		if line["level"] == "DEBUG" || at.Before(begun) || slices.Contains(without, text) {
			continue
		}
		minute := int(at.Sub(begun) / time.Minute)
		n.lines++
		minutes[minute]++
		if line["level"] != "INFO" {
			n.warnings++
			warnings[minute]++
		}
		n.most, n.mostWarnings = max(n.most, minutes[minute]), max(n.mostWarnings, warnings[minute])
		n.texts[text]++
	}
	return n
}

func (n noise) String() string {
	text := fmt.Sprintf("%d lines, at most %d a minute, %d warnings and errors", n.lines, n.most, n.warnings)
	for _, key := range slices.Sorted(maps.Keys(n.texts)) {
		text += fmt.Sprintf("\n%6d %s", n.texts[key], key)
	}
	return text
}

// withSlots sets the number of jobs at once.
func withSlots(n int) func(*worker.Config) { return func(c *worker.Config) { c.Concurrency = n } }

// runningSteps starts a worker with that many running jobs, which report each second.
func runningSteps(b *rig.Bed, jobs int) (p *rig.Process, work *rig.Steps) {
	b.T.Helper()
	work = &rig.Steps{N: 1500, Each: time.Second}
	b.PutSteps(jobs)
	p = b.Start("vm_0", job.Kinds{"steps": work}, withSlots(jobs))
	b.WaitFor("jobs run", time.Minute, func() bool { return work.Jobs() == jobs })
	time.Sleep(20 * time.Second)
	return p, work
}

// refuseAll makes storage refuse every call for so long.
func refuseAll(b *rig.Bed, status int, code string, lasts time.Duration) {
	b.Server.OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: status, Code: code, Message: "no"}}
	})
	time.Sleep(lasts)
	b.Server.OnCall(nil)
}

// measureNoise makes TestLogIsQuiet run for ten minutes of each fault, and for a calm hour.
var measureNoise = flag.Bool("noise", false, "measure the log of 64 jobs, for ten minutes of each fault and a calm hour")

// TestLogIsQuiet: how much a worker logs in trouble and without. The lines about a fault
// do not depend on the number of jobs that it concerns, and nothing is a warning where
// nothing is wrong.
func TestLogIsQuiet(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	jobs, long, calm := 16, 3*time.Minute, 500
	if *measureNoise {
		jobs, long, calm = 64, 10*time.Minute, 10_000
	}
	ofJobs := []string{
		"INFO job started", "INFO job committed", "INFO job released", "WARN job failed; it will be tried again",
		"ERROR message moved to the poison queue",
		"INFO queue read", // of no job: two each five minutes, when chance has it (package survey)
	}
	for _, tt := range []struct {
		name     string
		most     int // lines in one minute, without lines of single jobs
		warnings int // in one minute, of these
		run      func(b *rig.Bed) (p *rig.Process, begun time.Time)
	}{
		{"outage", 2, 2, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
			time.Sleep(2 * time.Minute)
			b.Server.OnCall(nil)
			time.Sleep(time.Minute)
			return p, begun
		}},
		{"no answer", 2, 2, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
			time.Sleep(2 * time.Minute)
			b.Server.OnCall(nil)
			time.Sleep(2 * time.Minute)
			return p, begun
		}},
		{"403", 2, 2, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			refuseAll(b, 403, "AuthorizationPermissionMismatch", long)
			time.Sleep(time.Minute)
			return p, begun
		}},
		{"throttled", 2, 2, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			var calls atomic.Int64
			b.Server.OnCall(func(storage.Call) storage.Fault {
				if calls.Add(1)%20 == 0 {
					return storage.Fault{}
				}
				return storage.Fault{Refuse: &storage.Error{Status: 503, Code: "ServerBusy", Message: "no"}}
			})
			time.Sleep(long)
			b.Server.OnCall(nil)
			time.Sleep(2 * time.Minute)
			return p, begun
		}},
		{"eviction", 5, 0, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
				b.T.Fatal(err)
			}
			time.Sleep(time.Minute)
			return p, begun
		}},
		{"eviction in an outage", 7, 3, func(b *rig.Bed) (*rig.Process, time.Time) {
			p, _ := runningSteps(b, jobs)
			begun := time.Now()
			b.Server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{DropRequest: true} })
			if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
				b.T.Fatal(err)
			}
			time.Sleep(time.Minute)
			return p, begun
		}},
		{"100 jobs that fail at once", 6, 1, func(b *rig.Bed) (*rig.Process, time.Time) {
			fails := job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, errors.New("exit code 1") })
			for i := range 100 {
				b.Put("crash-"+strconv.Itoa(i), "crash", "")
			}
			begun := time.Now()
			p := b.Start("vm_0", job.Kinds{"crash": fails}, withSlots(16))
			time.Sleep(long)
			return p, begun
		}},
		{"a calm time with short jobs", 5, 0, func(b *rig.Bed) (*rig.Process, time.Time) {
			begun := time.Now()
			p := b.Start("vm_0", job.Kinds{"echo": rig.Echo}, withSlots(8))
			for i := range calm {
				b.Put("short-"+strconv.Itoa(i), "echo", "1")
				time.Sleep(360 * time.Millisecond)
			}
			return p, begun
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.T = t
				p, begun := tt.run(b)
				all, worker := noiseOf(p, t, begun, nil), noiseOf(p, t, begun, ofJobs)
				t.Logf("%s\nwithout those of single jobs: %s", all, worker)
				if worker.lines == 0 || worker.most > tt.most || worker.mostWarnings > tt.warnings {
					t.Errorf("at most %d lines and %d warnings a minute, without those of single jobs, want some, at most %d and %d",
						worker.most, worker.mostWarnings, tt.most, tt.warnings)
				}
			})
		})
	}
}
