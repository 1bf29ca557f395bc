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

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
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

// TestTerminateDuringADrain: SIGTERM while the jobs are handed over because of a
// notice changes nothing of that; then the process ends rather than wait for the
// end of its VM.
func TestTerminateDuringADrain(t *testing.T) {
	c := newCloud(t, true)
	w := c.working(t, "stubborn")
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	w.untilState(t, "shutdown")
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	demandStates(t, w, "recover", "resume", "process", "shutdown", "stopped")
	if n := len(w.find("drained")); n != 1 {
		t.Errorf("drains that were logged = %d, want 1: the one that SIGTERM found", n)
	}
	c.demandReleased(t)
}

// TestTerminateInStart: a worker that waits for its storage is healthy, and ends
// when it is asked to.
func TestTerminateInStart(t *testing.T) {
	w := newCloud(t, false).start(t)
	w.until(t, "storage is not ready; no job is lost, trying again")
	w.demandHealth(t, "in warm-up")
	w.demandMetrics(t, `spotworker_state{state="start"} 1`)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	demandStates(t, w, "shutdown", "stopped")
}

// TestTerminateInWarmUp: likewise while it reads how its last run ended, and no call is
// answered.
func TestTerminateInWarmUp(t *testing.T) {
	c := newCloud(t, true)
	reads := make(chan struct{}, 1)
	c.storage.OnCall(func(call storage.Call) storage.Fault {
		if call.Container == c.names.Workers && call.Operation == storage.OpGetBlob {
			select {
			case reads <- struct{}{}:
			default:
			}
		}
		return storage.Fault{Before: time.Minute}
	})
	w := c.start(t)
	select {
	case <-reads:
	case <-time.After(time.Minute):
		t.Fatal("the worker did not read the heartbeat of its last run within a minute")
	}
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	demandStates(t, w, "shutdown", "stopped")
}

// TestNoticeBeforeProcess: a VM that is evicted while its worker starts. The
// worker takes no job, stays healthy and waits for the end.
func TestNoticeBeforeProcess(t *testing.T) {
	c := newCloud(t, true)
	c.put(t, "a", "polite")
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	w := c.start(t)
	w.untilState(t, "shutdown")
	w.demandHealth(t, "after a notice")
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if states := w.states(); slices.Contains(states, "process") || states[len(states)-1] != "stopped" {
		t.Errorf("states = %q, want the last to be stopped, and process not among them", states)
	}
	if n := len(w.find("job started")); n != 0 {
		t.Errorf("jobs started = %d, want none", n)
	}
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
