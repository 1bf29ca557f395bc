package workercmd

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// TestExitWhenIdleOfProcess: a worker that finds no message any more ends its process with
// exit code 0, after its job and not before the time.
func TestExitWhenIdleOfProcess(t *testing.T) {
	const idle = time.Second
	c := newCloud(t, true)
	c.put(t, "a", "short")
	w := c.start(t, "--exit-when-idle="+idle.String())
	c.untilRecord(t, "a", "done", func(r checkpoint.Record) bool { return r.Status == checkpoint.Done })
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	// Both times are the worker's own: this process may see the end of the job much later.
	if took := w.timeOf(t, "state changed", "to", "shutdown").Sub(w.timeOf(t, "job committed", "job_id", "a")); took < idle {
		t.Errorf("worker ended %s after its job, want %s", took, idle)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown", "stopped")
	if n := len(c.storage.Messages(c.names.Queue)); n != 0 {
		t.Errorf("messages left = %d, want none", n)
	}
}

// timeOf returns the time of the first line with that message and attribute.
func (w *workerProcess) timeOf(t *testing.T, msg, key, value string) time.Time {
	t.Helper()
	for _, line := range w.find(msg) {
		if line[key] != value {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, line["time"].(string))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	t.Fatalf("the log has no line %q with %s %q", msg, key, value)
	return time.Time{}
}

// TestExitWhenIdleRefused: a time below 0 is a wrong configuration.
func TestExitWhenIdleRefused(t *testing.T) {
	c := newCloud(t, true)
	if end := c.start(t, "--exit-when-idle=-1s").end(t); end.ExitCode() != 78 {
		t.Errorf("worker ended with %s, want exit code 78", end)
	}
}
