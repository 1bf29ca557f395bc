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
	done := time.Now()
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	// The job's end is seen here up to a poll of the record later.
	if took := time.Since(done); took < idle-200*time.Millisecond {
		t.Errorf("worker ended %s after its job, want %s", took, idle)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown", "stopped")
	if n := len(c.storage.Messages(c.names.Queue)); n != 0 {
		t.Errorf("messages left = %d, want none", n)
	}
}

// TestExitWhenIdleRefused: a time below 0 is a wrong configuration.
func TestExitWhenIdleRefused(t *testing.T) {
	c := newCloud(t, true)
	if end := c.start(t, "--exit-when-idle=-1s").end(t); end.ExitCode() != 78 {
		t.Errorf("worker ended with %s, want exit code 78", end)
	}
}
