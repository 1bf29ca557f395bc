//go:build integration && linux

package snapshots

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

const pythonLoop = `
import os, time
out = open("log", "w")
total = 0
for i in range(60):
    total += i
    out.write(f"{i} {total}\n")
    out.flush()
    print(i)
    time.sleep(0.05)
out.close()
open(os.environ["SPOTWORKER_RESULT"], "w").write(open("log").read())
`

// evicted runs a job that is evicted after each of the times, and returns its result.
func evicted(t *testing.T, k program.Kind, after ...time.Duration) string {
	t.Helper()
	var state []byte
	for _, d := range after {
		r := newMachine(t, nil).begin(k, state, time.Hour)
		select {
		case <-r.done:
			t.Fatalf("the program ended before its eviction: %q, %v; log:\n%s", r.result, r.err, r.m.log)
		case <-time.After(d):
		}
		r.stop(job.Evicted, 20*time.Second)
		if !job.IsInterrupted(r.err) {
			t.Fatalf("Run of an evicted program = %q, %v, want an interruption; log:\n%s", r.result, r.err, r.m.log)
		}
		state = r.state()
		r.Close()
	}
	r := newMachine(t, nil).begin(k, state, time.Hour)
	r.wait()
	if r.err != nil {
		t.Fatalf("Run = %v; log:\n%s", r.err, r.m.log)
	}
	r.Close()
	return string(r.result)
}

func TestPythonLoop(t *testing.T) {
	withCRIU(t)
	python := need.Command(t, "python3")
	k := program.Kind{Name: "loop", Command: []string{python, "-u", "-c", pythonLoop}, Snapshot: true}
	want := evicted(t, k)
	if got := evicted(t, k, time.Second, 400*time.Millisecond, 400*time.Millisecond); got != want {
		t.Errorf("evicted three times: result %q, want that of an undisturbed run, %q", got, want)
	}
}
