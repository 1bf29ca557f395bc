package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
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
