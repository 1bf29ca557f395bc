package workercmd

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serve serves the metadata emulator and returns its base URL.
func (c *cloud) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c.metadata.Handler(), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return "http://" + listener.Addr().String()
}

// working starts a worker that runs a job of that kind.
func (c *cloud) working(t *testing.T, kind string, args ...string) *workerProcess {
	t.Helper()
	c.put(t, "a", kind)
	w := c.start(t, args...)
	w.until(t, "job started")
	return w
}

func demandStates(t *testing.T, w *workerProcess, want ...string) {
	t.Helper()
	if got := w.states(); !slices.Equal(got, want) {
		t.Errorf("states = %q, want %q", got, want)
	}
}

func (c *cloud) demandReleased(t *testing.T) {
	t.Helper()
	if m := c.storage.Messages(c.names.Queue); len(m) != 1 || !m[0].Visible {
		t.Errorf("messages after the end = %+v, want one that is visible", m)
	}
}

// TestTerminate is the ordinary end of a process: everything is handed over.
func TestTerminate(t *testing.T) {
	c := newCloud(t, true)
	w := c.working(t, "polite", "--concurrency=2")
	w.demandHealth(t, "while a job runs")
	w.demandMetrics(t, `spotworker_state{state="process"} 1`, "spotworker_jobs_in_hand 1", "spotworker_job_slots 2",
		"spotworker_deliveries_total 1", `spotworker_handler_starts_total{start="first"} 1`, "spotworker_healthy 1",
		`spotworker_storage_calls_total{operation="GetQueueMetadata",service="queue",status="2xx"} 1`,
		"spotworker_metadata_blind_seconds_total 0")
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown", "stopped")
	c.demandReleased(t)
}

// TestStopWithStdin: a worker that was told so hands over when its input is closed.
func TestStopWithStdin(t *testing.T) {
	c := newCloud(t, true)
	w := c.working(t, "stubborn", "--stop-with-stdin")
	if err := w.input.Close(); err != nil {
		t.Fatal(err)
	}
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown", "stopped")
	c.demandReleased(t)
}

// TestInterruptDuringADrain: a further SIGTERM changes nothing; an interrupt, which
// a person sends from a terminal, ends the process at once.
func TestInterruptDuringADrain(t *testing.T) {
	c := newCloud(t, true)
	w := c.working(t, "stubborn", "--drain-budget=1h") // far longer than the test waits
	w.terminate(t)
	w.untilState(t, "shutdown")
	for range 2 {
		w.terminate(t)
		w.demandHealth(t, "in a drain")
	}
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	end := w.end(t)
	if status := end.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("worker ended with %s, want by SIGINT: the drain was not done", end)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown")
}

// TestServiceManager: what systemd hears of a process from its start to its end.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const over = "over"
	var said []string
	ended := make(chan struct{})
	go func() { // beside the worker: the socket holds a few messages, then its sender waits
		defer close(ended)
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil || string(buffer[:n]) == over {
				return
			}
			said = append(said, string(buffer[:n]))
		}
	}()
	c := newCloud(t, true)
	w := c.startWith(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=200000"})
	w.untilState(t, "process")
	w.terminate(t)
	w.end(t)
	last, err := net.Dial("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if _, err := last.Write([]byte(over)); err != nil { // it follows the worker's messages
		t.Fatal(err)
	}
	<-ended

	all := strings.Join(said, "\n")
	if len(said) == 0 || said[0] != "READY=1\nSTATUS=start, 0 active jobs" {
		t.Errorf("first message of %q, want READY=1 with the state", said)
	}
	if n := strings.Count(all, "STOPPING=1"); n != 1 || !strings.Contains(all, "EXTEND_TIMEOUT_USEC=20000000") {
		t.Errorf("messages = %q, want STOPPING=1 once, with the time that the drain may take", said)
	}
	said = slices.DeleteFunc(said, func(m string) bool { return m == "WATCHDOG=1" }) // at any time, also after the end
	if last := said[len(said)-1]; !strings.Contains(last, "STATUS=stopped, 0 active jobs") {
		t.Errorf("last message but the watchdog's = %q, want the end", last)
	}
}
