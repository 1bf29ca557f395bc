//go:build integration && linux

package snapshots

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/job"
)

// patience bounds every wait: a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// lines is a log for a failed test.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// machine is a worker's part for programs: each run of a job has a new one, with another
// scratch folder and other users.
type machine struct {
	t       *testing.T
	scratch *scratch.Root
	log     *lines
}

// criuFolder has the CRIU of .tools.
var criuFolder, _ = filepath.Abs("../../../../.tools/criu/bin")

func TestMain(m *testing.M) {
	labworker.WorkerMain()
	_ = os.Setenv("PATH", criuFolder+":"+os.Getenv("PATH"))
	_ = os.Setenv("AZURE_STORAGE_CONNECTION_STRING", "attack-secret") // no program may find it
	m.Run()
}

// withCRIU skips the test without CRIU, and on a machine that forbids snapshots.
func withCRIU(t *testing.T) {
	t.Helper()
	criu := filepath.Join(criuFolder, "criu")
	if _, err := os.Stat(criu); err != nil {
		need.Missing(t, "CRIU in .tools")
	}
	var programs unix.Statfs_t
	if err := unix.Statfs("/bin/sh", &programs); err != nil {
		t.Fatal(err)
	}
	if programs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		need.Absent(t, need.Snapshots, "/bin/sh is on an overlay file system")
	}
	if _, err := snapshot.Check(t.Context(), criu, t.TempDir(), nil); err != nil {
		need.Absent(t, need.Snapshots, err.Error())
	}
}

func newMachine(t *testing.T, users *sandbox.Users) *machine {
	t.Helper()
	m := &machine{t: t, log: &lines{}}
	var err error
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // the users pass through
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if m.scratch, err = scratch.Open(dir, users, m.logger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.scratch.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", m.log)
		}
	})
	return m
}

func (m *machine) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// run is a job that runs on a machine.
type run struct {
	job.Control
	m      *machine
	cancel context.CancelCauseFunc
	done   chan struct{}
	result []byte
	err    error
}

// begin runs a job, from a state or from the start.
func (m *machine) begin(k program.Kind, saved []byte, interval time.Duration) *run {
	m.t.Helper()
	var from *job.Progress
	if saved != nil {
		from = &job.Progress{Version: 16, Stream: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(saved)), nil }}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run{Control: job.ControlOf(job.New(job.Spec{ID: "job-1", Kind: k.Name, Payload: []byte(`"payload"`), Attempt: 1}, from)),
		m: m, cancel: cancel, done: make(chan struct{})}
	r.OnSaveInterval(func(time.Duration) time.Duration { return interval })
	h := program.NewHandler(k, m.scratch, nil, nil, nil, m.logger())
	go func() {
		defer close(r.done)
		r.result, r.err = h.Run(ctx, r.Job)
	}()
	m.t.Cleanup(func() { r.stop(job.Cancelled, 0) })
	return r
}

// stop stops the job and waits for its handler.
func (r *run) stop(reason job.Reason, left time.Duration) {
	r.cancel(&job.Stop{Reason: reason, Deadline: time.Now().Add(left)})
	r.wait()
}

func (r *run) wait() {
	select {
	case <-r.done:
	case <-time.After(patience):
		r.m.t.Errorf("handler did not return within %s; log:\n%s", patience, r.m.log)
	}
}

// state reads the last reported state.
func (r *run) state() []byte {
	r.m.t.Helper()
	p := r.Latest()
	if !p.HasState() {
		r.m.t.Fatalf("no state was reported: %v; log:\n%s", r.err, r.m.log)
	}
	if p.Version != 16 {
		r.m.t.Fatalf("state has version %d", p.Version)
	}
	if p.State != nil {
		return p.State
	}
	stream, err := p.Stream()
	if err != nil {
		r.m.t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(stream)
	if err != nil {
		r.m.t.Fatal(err)
	}
	return data
}

// until waits until something holds, or the handler has returned.
func (r *run) until(what string, holds func() bool) {
	r.m.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-r.done:
			r.m.t.Fatalf("%s: the handler has returned: %q, %v; log:\n%s", what, r.result, r.err, r.m.log)
		default:
		}
		if time.Now().After(end) {
			r.m.t.Fatalf("%s: not within %s; log:\n%s", what, patience, r.m.log)
		}
	}
}

// untilRunning waits until the program runs.
func (r *run) untilRunning(state []byte) {
	r.m.t.Helper()
	r.until("the program runs", func() bool { return r.m.runs(state != nil) })
}

// runs reports whether the program has printed its first line, or was restored.
func (m *machine) runs(restored bool) bool {
	line := "text=running"
	if restored {
		line = "program continues from its snapshot"
	}
	return strings.Contains(m.log.String(), line)
}

func (m *machine) untilRuns(restored bool) {
	m.t.Helper()
	until(m.t, m, "the program runs", func() bool { return m.runs(restored) })
}

// letFinish makes the file that the program waits for before its end.
func (m *machine) letFinish() {
	m.t.Helper()
	m.write("finish")
}

// write makes an empty file in the working folder of the program.
func (m *machine) write(name string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.work(), name), nil, 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// work is the working folder of the program.
func (m *machine) work() string {
	m.t.Helper()
	works, err := filepath.Glob(filepath.Join(m.scratch.Parent(), "*", "job-*", "work"))
	if err != nil || len(works) != 1 {
		m.t.Fatalf("working folders = %q, %v, want one", works, err)
	}
	return works[0]
}

// evict evicts the job, and returns its last state.
func (r *run) evict() []byte {
	r.m.t.Helper()
	defer r.Close()
	r.stop(job.Evicted, time.Minute)
	if !job.IsInterrupted(r.err) {
		r.m.t.Fatalf("Run of an evicted program = %q, %v, want an interruption; log:\n%s", r.result, r.err, r.m.log)
	}
	return r.state()
}

// finish runs a job to its end, and returns its result.
func (m *machine) finish(k program.Kind, state []byte) string {
	m.t.Helper()
	r := m.begin(k, state, never)
	defer r.Close()
	r.untilRunning(state)
	m.letFinish()
	r.wait()
	if r.err != nil {
		m.t.Fatalf("Run = %v; log:\n%s", r.err, m.log)
	}
	return string(r.result)
}

// usersIn returns users for programs, where this machine lets the test have some.
func usersIn(t *testing.T, ids string) *sandbox.Users {
	t.Helper()
	all, err := sandbox.ParseRange(ids)
	if err != nil {
		t.Fatal(err)
	}
	users, err := sandbox.Open(sandbox.Config{Range: all, Slots: 1})
	if err != nil {
		need.Missing(t, "rights to run programs as other users: "+err.Error())
	}
	return users
}
