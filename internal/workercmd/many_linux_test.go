package workercmd

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
)

// full has TestManyJobsOfProcess measure what docs/operating.md says.
var full = flag.Bool("figures", false, "give a worker 1,000 and 10,000 jobs")

// TestManyJobsOfProcess runs many jobs at once on a real process, over real sockets,
// through their first saves, touches and renewals, and then hands them over. With
// -figures there are 1,000 and 10,000; connections are counted in virtual time by
// worker: TestManyJobs.
func TestManyJobsOfProcess(t *testing.T) {
	if !*full {
		runManyJobs(t, 100, time.Second)
		return
	}
	for _, jobs := range []int{1000, 10_000} {
		runManyJobs(t, jobs, 20*time.Second)
	}
}

// runManyJobs runs that many jobs for a while.
func runManyJobs(t *testing.T, jobs int, running time.Duration) {
	t.Helper()
	c := newCloud(t, true)
	for i := range jobs {
		if err := c.stores.Queue.Put(t.Context(), queue.Envelope{ID: fmt.Sprintf("job-%d", i), Kind: "polite", EnqueuedAt: time.Now()},
			0); err != nil {
			t.Fatal(err)
		}
	}
	w := c.start(t, fmt.Sprintf("--concurrency=%d", jobs), "--drain-budget=1m")
	for late := time.Now().Add(patience); len(w.find("job started")) < jobs; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("jobs started = %d, want %d", len(w.find("job started")), jobs)
		}
	}
	connections := 0
	for until := time.Now().Add(running); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		connections = max(connections, w.sockets(t))
	}
	peak := w.peak(t)
	w.terminate(t)
	drained := w.until(t, "drained")
	w.end(t)
	t.Logf("%d jobs: at most %d connections, peak RSS %d MiB, drained in %v", jobs, connections, peak>>20, drained["since_notice"])
	if got := drained["released"]; got != float64(jobs) {
		t.Errorf("jobs released = %v, want %d", got, jobs)
	}
}

// sockets returns how many sockets the process has open.
func (w *workerProcess) sockets(t *testing.T) (n int) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(folder + "/" + e.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// peak is the largest amount of memory that the process has had, in bytes.
func (w *workerProcess) peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the system does not say how much memory the process has had")
	return 0
}
