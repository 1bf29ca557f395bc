//go:build unix

package workercmd

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/guard"
	"github.com/spotworker/spotworker/internal/test/need"
)

// startUnread starts a worker whose log goes to a file that the test does not read.
func (c *cloud) startUnread(t *testing.T, log *os.File) *workerProcess {
	t.Helper()
	endpoint := guard.Loopback(t, c.endpoint)
	w := &workerProcess{
		cmd:   exec.Command("testworker", "--metadata-endpoint="+endpoint, "--listen=none", "--log-level=debug", "--checkpoint-interval=200ms"),
		ended: make(chan struct{}),
	}
	w.cmd.Env = c.environment(nil)
	w.cmd.Stderr = log
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		_ = w.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // fails only if it has ended
		<-w.ended
	})
	return w
}

// demandHandedOver terminates a worker that runs job a, and demands exit code 0, the
// job released with its state, and no failure, as of every worker.
func (c *cloud) demandHandedOver(t *testing.T, w *workerProcess) {
	t.Helper()
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	c.demandReleased(t)
	r, err := c.stores.Records.Read(t.Context(), "a")
	if err != nil || r.Status != checkpoint.Open || !r.HasState() || r.Failures != 0 || r.Interruptions != 1 {
		t.Errorf("record = %+v, %v, want it open with its state, one interruption and no failure", r, err)
	}
}

func hasState(r checkpoint.Record) bool { return r.HasState() }

// TestLogReaderIsGone: a worker whose log goes into a closed pipe, as when the
// program behind it has died, continues and hands over.
func TestLogReaderIsGone(t *testing.T) {
	c := newCloud(t, true)
	c.put(t, "a", "polite")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	w := c.startUnread(t, writer)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	c.untilRecord(t, "a", "saved", hasState)
	c.demandHandedOver(t, w)
}

// TestLogOnAFullDisk: a log that cannot be written stops no work.
func TestLogOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		need.Missing(t, "/dev/full")
	}
	defer full.Close()
	c := newCloud(t, true)
	c.put(t, "a", "polite")
	w := c.startUnread(t, full)
	c.untilRecord(t, "a", "saved", hasState)
	c.demandHandedOver(t, w)
}

// TestProgramsGetSIGPIPE: the worker ignores SIGPIPE, but its programs do not inherit
// that: a program that writes into a closed pipe ends, as its author expects.
func TestProgramsGetSIGPIPE(t *testing.T) {
	defer ignoreSIGPIPE()()
	cmd := exec.Command("sh", "-c", "kill -PIPE $$; exit 0")
	err := cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("a program that gets SIGPIPE ended with %v, want by that signal", err)
	}
}
