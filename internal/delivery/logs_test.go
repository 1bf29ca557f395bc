package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// manyLines is a number of lines for which the record of a job has no room.
const manyLines = 40

// notStored is the line about a log that could not be stored.
const notStored = "lines of the job's own log not stored; its record has the last of them"

// printLines prints lines of a job.
func printLines(ctx context.Context, id string, number int) {
	for n := range number {
		job.Print(ctx, joblog.Stdout, rig.LogLineOf(id, n))
	}
}

// writesLog chooses the writes of logs.
func writesLog(c storage.Call) bool {
	return strings.HasPrefix(c.Blob, joblog.Prefix) && c.Operation == storage.OpPutBlob
}

// levels returns the levels of the lines about logs that could not be stored.
func (b *bench) levels() string {
	var levels []string
	for _, line := range b.log.Find(notStored) {
		levels = append(levels, fmt.Sprint(line["level"], " ", line["suppressed"]))
	}
	return strings.Join(levels, ", ")
}

// TestLinesOfAJob: lines that a job printed are in its record, and beyond that in its log, once the job has ended.
func TestLinesOfAJob(t *testing.T) {
	for name, lines := range map[string]int{"none": 0, "a few": 1, "many": manyLines} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				printLines(ctx, "a", lines)
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				r := b.Record("a")
				if got := len(rig.Texts(b.LogOf(r))); got != lines || (r.Log != "") != (lines > 0) {
					t.Errorf("%d lines, and %d bytes in the record; want %d lines", got, len(r.Log), lines)
				}
			})
		})
	}
}

// TestSlowLog: the end of a job waits for the write of its log for ten seconds at most.
func TestSlowLog(t *testing.T) {
	for takes, stored := range map[time.Duration]bool{9 * time.Second: true, 11 * time.Second: false} {
		t.Run(takes.String(), func(t *testing.T) {
			kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				printLines(ctx, "a", manyLines)
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.delay(takes, writesLog)
				b.Put("a", "k", "")
				begun := time.Now()
				b.runOne()
				r, took, want := b.Record("a"), time.Since(begun), "DEBUG 0" // the whole worker warns
				if stored {
					want = ""
				}
				if full := len(rig.Texts(b.LogOf(r))) == manyLines; took != min(takes, 10*time.Second) || full != stored || b.levels() != want ||
					b.MessagesLeft() != 0 {
					t.Errorf("all lines stored: %t after %s, lines %q, %d messages; want %t, %q, none", full, took, b.levels(), b.MessagesLeft(),
						stored, want)
				}
			})
		})
	}
}

// TestLogInADrain: the lines of a stopped job are stored after its release if storage answers within a second. Lines
// that are lost in a drain are no warning.
func TestLogInADrain(t *testing.T) {
	for name, row := range map[string]struct {
		answer time.Duration
		stored bool
		levels string
	}{"in time": {250 * time.Millisecond, true, ""}, "too late": {time.Hour, false, "DEBUG 0"}} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				printLines(ctx, "a", manyLines)
				j.Report(job.Progress{State: []byte("s")})
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(2 * time.Second)
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					if writesLog(c) {
						return storage.Fault{Before: row.answer}
					}
					return storage.Fault{}
				})
				begun := time.Now()
				b.drainNow(10 * time.Second)
				wait()
				if took := time.Since(begun); took < min(row.answer, time.Second) || took > time.Second+100*time.Millisecond {
					t.Errorf("the delivery ended %s after the stop, want the time of the write, a second at most", took)
				}
				if got := len(rig.Texts(b.LogOf(b.Record("a")))); (got == manyLines) != row.stored || b.visible() != 1 || b.levels() != row.levels {
					t.Errorf("%d lines, %d visible messages, lines %q; want all lines: %t, one, %q", got, b.visible(), b.levels(), row.stored,
						row.levels)
				}
			})
		})
	}
}

// TestLogsComeLastInADrain: a job's log is written after the other jobs are released, if the worker stops, and at once if the job alone is
// stopped.
func TestLogsComeLastInADrain(t *testing.T) {
	for name, drains := range map[string]bool{"a drain": true, "one job": false} {
		t.Run(name, func(t *testing.T) {
			prints := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
				<-ctx.Done()
				printLines(ctx, "a", manyLines)
				return nil, context.Cause(ctx)
			})
			kinds := job.Kinds{"k": &rig.SteadyReporter{}, "prints": job.WithLimits(prints, job.Limits{MaxSilence: time.Minute})}
			onBench(t, kinds, func(t *testing.T, b *bench) {
				var mu sync.Mutex
				var stopped, written time.Time
				b.Server.OnCall(func(c storage.Call) storage.Fault {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case writesLog(c) && !stopped.IsZero():
						written = time.Now()
					case path.Base(c.Blob) == "b" && !stopped.IsZero():
						return storage.Fault{Before: 100 * time.Millisecond}
					}
					return storage.Fault{}
				})
				b.Put("a", "prints", "")
				first := b.begin(b.claim())
				b.Put("b", "k", "")
				second := b.begin(b.claim())
				time.Sleep(59 * time.Second)
				mu.Lock()
				stopped = time.Now()
				mu.Unlock()
				after := time.Second // the rest of the minute
				if drains {
					b.drainNow(10 * time.Second)
					after = 100 * time.Millisecond
				}
				first()
				mu.Lock()
				took := written.Sub(stopped)
				mu.Unlock()
				if took != after || len(b.Running()) == 0 != drains {
					t.Errorf("the log was written %s after the stop, %d jobs run; want %s", took, len(b.Running()), after)
				}
				if !drains {
					b.drainNow(10 * time.Second)
				}
				second()
			})
		})
	}
}

// TestLogThatIsRefused: a worker warns once a minute that the logs of a kind cannot be stored, and counts the others, also while a job
// runs.
func TestLogThatIsRefused(t *testing.T) {
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
		printLines(ctx, j.ID, manyLines)
		if j.ID == "long" {
			j.Report(job.Progress{State: []byte("s")})
			return nil, sleeps(ctx, time.Minute)
		}
		return nil, nil
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.fail(http.StatusBadRequest, "InvalidHeaderValue", writesLog)
		for i := range 4 {
			switch i {
			case 2:
				time.Sleep(59 * time.Second)
			case 3:
				time.Sleep(time.Second)
			}
			b.Put(fmt.Sprint("job-", i), "k", "")
			b.runOne()
		}
		if got, want := b.levels(), "WARN 0, DEBUG 0, DEBUG 0, WARN 2"; got != want || b.counter.WithPrefix("ended committed") != 4 {
			t.Errorf("lines %q, %d jobs committed; want %q, 4", got, b.counter.WithPrefix("ended committed"), want)
		}
		time.Sleep(time.Minute)
		b.Put("long", "k", "")
		wait := b.begin(b.claim())
		time.Sleep(30 * time.Second)
		if got, want := b.levels(), "WARN 0, DEBUG 0, DEBUG 0, WARN 2, WARN 0"; got != want || len(b.Running()) != 1 {
			t.Errorf("lines %q while %d jobs run, want %q, one", got, len(b.Running()), want)
		}
		wait()
	})
}
