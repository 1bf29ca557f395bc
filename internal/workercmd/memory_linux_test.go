package workercmd

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
)

// full has TestPayloadMemoryOfProcess measure the rows of docs/SECURITY.md, which
// takes 5 GiB of memory.
var full = flag.Bool("figures", false, "give a worker 32 payloads of 64 MiB")

// TestPayloadMemoryOfProcess: a worker process holds as many payloads as its flag
// allows, and the jobs of further ones wait, in however many slots.
func TestPayloadMemoryOfProcess(t *testing.T) {
	const (
		mib   = 1 << 20
		base  = 96 * mib // of a worker without payloads
		waits = "job waits for memory: the payloads of other jobs take all of it (--payload-memory)"
	)
	jobs, size, allowed := 12, 16*mib, 64
	if *full {
		jobs, size, allowed = 32, queue.MaxPayload, 1024
	}
	run := func(kind string) (c *cloud, w *workerProcess) {
		c = newCloud(t, true)
		payload := bytes.Repeat([]byte("x"), size)
		for i := range jobs {
			e := queue.Envelope{ID: fmt.Sprintf("job-%d", i), Kind: kind, EnqueuedAt: time.Now(), Payload: queue.BytesPayload(payload)}
			e, err := c.stores.Payloads.Offload(t.Context(), e)
			if err == nil {
				err = c.stores.Queue.Put(t.Context(), e, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return c, c.start(t, fmt.Sprintf("--concurrency=%d", jobs), fmt.Sprintf("--payload-memory=%d", allowed))
	}
	show := func(w *workerProcess, what string) (peak int) {
		peak = w.peak(t)
		t.Logf("%d payloads of %d MiB in as many slots, --payload-memory %d, %s: peak RSS %d MiB", jobs, size/mib, allowed, what, peak/mib)
		return peak
	}

	fit := allowed * mib / size
	_, w := run("polite") // which holds its payload to the end
	for late := time.Now().Add(patience); len(w.find("job started")) < fit ||
		len(w.find(waits)) < jobs-fit; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("of %d jobs %d run and %d wait for memory, want %d and %d", jobs, len(w.find("job started")), len(w.find(waits)), fit, jobs-fit)
		}
	}
	if started := len(w.find("job started")); started > fit {
		t.Errorf("%d jobs run, want %d", started, fit)
	}
	if peak, most := show(w, "held"), allowed*mib+base; peak > most && !hasRaceDetector() {
		t.Errorf("peak RSS = %d bytes, want at most %d", peak, most)
	}
	w.terminate(t)
	w.end(t)

	if !*full {
		return
	}
	c, w := run("holds") // payloads that follow one another: freed memory counts until the collector runs
	for i := range jobs {
		c.untilRecord(t, fmt.Sprintf("job-%d", i), "done", func(r checkpoint.Record) bool { return r.Status == checkpoint.Done })
	}
	if peak, most := show(w, "released after 0.2 s"), 2*allowed*mib+base; peak > most {
		t.Errorf("peak RSS = %d bytes, want at most %d", peak, most)
	}
}

// hasRaceDetector reports whether test and worker are built with it. It takes
// memory of its own.
func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
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
