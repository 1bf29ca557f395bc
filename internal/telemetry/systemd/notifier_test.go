package systemd

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a service manager's end of the socket, and a worker's status.
type manager struct {
	conn    *net.UnixConn
	status  atomic.Value
	healthy atomic.Bool
}

// newManager listens where the environment says.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", "")
	m := &manager{conn: conn}
	m.status.Store("start, 0 active jobs")
	m.healthy.Store(true)
	return m
}

func (m *manager) config() Config {
	return Config{
		DrainBudget: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		Status:  func() string { return m.status.Load().(string) },
		Healthy: m.healthy.Load,
	}
}

// next returns the next message, or "" if none comes in time.
func (m *manager) next(t *testing.T, within time.Duration) string {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	n, err := m.conn.Read(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// run runs a notifier for the test.
func run(t *testing.T, n *Notifier) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// patience bounds every wait: a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// until reads messages until one contains text, and returns them in lines.
func (m *manager) until(t *testing.T, text string) string {
	t.Helper()
	var all []string
	for {
		message := m.next(t, patience)
		if message == "" {
			t.Fatalf("messages = %q, want %q in the last", all, text)
		}
		if all = append(all, message); strings.Contains(message, text) {
			return strings.Join(all, "\n")
		}
	}
}

func TestLifeOfAService(t *testing.T) {
	m := newManager(t)
	n := New(m.config())
	stop := run(t, n)
	if got, want := m.next(t, patience), "READY=1\nSTATUS=start, 0 active jobs"; got != want {
		t.Fatalf("first message = %q, want %q", got, want)
	}
	n.Changed() // nothing is different: nothing is said
	m.status.Store("process, 2 active jobs")
	n.Changed()
	if got, want := m.next(t, patience), "STATUS=process, 2 active jobs"; got != want {
		t.Errorf("message at a change = %q, want %q", got, want)
	}
	m.status.Store("shutdown, 2 active jobs")
	n.Stopping()
	// The state and the stop are two messages if an earlier call of Changed is handled between them.
	if got, want := m.until(t, "STOPPING"), "STATUS=shutdown, 2 active jobs\nSTOPPING=1\nEXTEND_TIMEOUT_USEC=30000000"; got != want {
		t.Errorf("messages at the end = %q, want %q", got, want)
	}
	n.Stopping() // a second SIGTERM is no news
	m.status.Store("stopped, 0 active jobs")
	stop()
	if got, want := m.next(t, patience), "STATUS=stopped, 0 active jobs"; got != want {
		t.Errorf("last message = %q, want %q", got, want)
	}
}

// TestWatchdog: the watchdog is fed twice in its time, while the worker is
// healthy and no longer.
func TestWatchdog(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt((200*time.Millisecond).Microseconds(), 10))
	c := m.config()
	refused := make(chan struct{}, 1) // the notifier asked, and the worker was not healthy
	c.Healthy = func() bool {
		if m.healthy.Load() {
			return true
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return false
	}
	n := New(c)
	if got, want := n.interval(), 100*time.Millisecond; got != want {
		t.Errorf("interval = %s, want %s: half of the watchdog's", got, want)
	}
	run(t, n)
	m.next(t, patience)
	for range 3 {
		if got := m.next(t, patience); got != "WATCHDOG=1" {
			t.Errorf("message of a healthy worker = %q, want WATCHDOG=1", got)
		}
	}
	m.healthy.Store(false)
	<-refused
	m.status.Store("process, hangs")
	n.Changed()
	m.until(t, "STATUS=process, hangs") // after the messages that were sent before
	for range 3 {
		<-refused
	}
	m.status.Store("process, still hangs")
	n.Changed()
	if got, want := m.next(t, patience), "STATUS=process, still hangs"; got != want {
		t.Errorf("message of a worker that hangs = %q, want %q alone", got, want)
	}
	m.healthy.Store(true)
	if got := m.next(t, patience); got != "WATCHDOG=1" {
		t.Errorf("message of a worker that continues = %q, want WATCHDOG=1", got)
	}
}

func TestOtherWatchdogs(t *testing.T) {
	for name, row := range map[string]struct {
		usec, pid string
		warns     bool
	}{
		"none":              {"", "", false},
		"another process's": {"1000000", "1", false},
		"not a number":      {"soon", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			t.Setenv("WATCHDOG_USEC", row.usec)
			t.Setenv("WATCHDOG_PID", row.pid)
			var log bytes.Buffer
			c := m.config()
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			n := New(c)
			if n.watchdog != 0 || n.interval() != statusEvery {
				t.Errorf("watchdog = %s every %s, want none", n.watchdog, n.interval())
			}
			if warned := log.Len() > 0; warned != row.warns {
				t.Errorf("log = %q, want a warning: %t", log.String(), row.warns)
			}
		})
	}
}

func TestWithoutServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := New(Config{Status: func() string { panic("asked for a status that is not sent") }})
	n.Stopping()
	n.Run(t.Context()) // returns at once
}

// TestDeafServiceManager: a socket that is gone is said once, and is no more
// than that.
func TestDeafServiceManager(t *testing.T) {
	m := newManager(t)
	var log bytes.Buffer
	c := m.config()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	n := New(c)
	_ = m.conn.Close()
	stop := run(t, n)
	m.status.Store("process, 0 active jobs")
	n.Changed()
	stop()
	if got := strings.Count(log.String(), "systemd not notified"); got != 1 {
		t.Errorf("warnings = %d in %q, want 1", got, log.String())
	}
}
