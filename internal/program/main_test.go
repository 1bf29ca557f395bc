package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// roleVariable tells the test binary which program to be.
const roleVariable = "TEST_ROLE"

// TestMain lets the test binary play the program of a job.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		act, ok := roles[role]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such role:", role)
			os.Exit(99)
		}
		os.Exit(act())
	}
	goleak.VerifyTestMain(m)
}

// rig is a scratch folder and a log.
type rig struct {
	t       *testing.T
	scratch *scratch.Root
	log     *logLines
}

func setup(t *testing.T) *rig {
	t.Helper()
	b := &rig{t: t, log: &logLines{}}
	var err error
	if b.scratch, err = scratch.Open(scratchParent(t), testUsers(t), b.logger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.scratch.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return b
}

// home is the scratch folder of the rig.
func (b *rig) home() string {
	b.t.Helper()
	locks, err := filepath.Glob(filepath.Join(b.scratch.Parent(), "spotworker-scratch-*", "lock"))
	if err != nil || len(locks) != 1 {
		b.t.Fatalf("locks of scratch folders = %q, %v, want one", locks, err)
	}
	return filepath.Dir(locks[0])
}

// wantNoFolders checks that the folders of all jobs are removed, which takes place beside
// the jobs.
func (b *rig) wantNoFolders() {
	b.t.Helper()
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if left, _ = filepath.Glob(filepath.Join(b.scratch.Parent(), "*", "job-*")); len(left) == 0 {
			return
		}
	}
	b.t.Errorf("%q is left behind", left)
}

func (b *rig) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// kind runs the test binary in a role, with variables as NAME=TEXT.
func (b *rig) kind(role string, variables ...string) Kind {
	b.t.Helper()
	program, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	environment := map[string]string{
		roleVariable: role, "GORACE": "atexit_sleep_ms=0",
		"GOCOVERDIR": b.t.TempDir(), // a covered program prints a warning without one
	}
	for _, variable := range variables {
		name, text, _ := strings.Cut(variable, "=")
		environment[name] = text
	}
	return Kind{Name: "test", Command: []string{program}, Environment: environment}
}

// work is a job in the hands of a handler.
type work struct {
	job.Control
	result []byte
	err    error
	done   chan struct{}
	began  time.Time
	cancel context.CancelCauseFunc
}

// begin calls the handler of a kind for a job.
func (b *rig) begin(k Kind, payload string, saved *job.Progress) *work {
	b.t.Helper()
	return b.beginJob(k, job.New(job.Spec{ID: "job-1", Kind: "test", Payload: []byte(payload), Attempt: 1}, saved))
}

// prepared calls the handler for a job that was prepared, and waits until it has
// returned.
func (b *rig) prepared(k Kind, prepare func(job.Control)) *work {
	b.t.Helper()
	j := job.New(job.Spec{ID: "job-1", Kind: "test", Attempt: 1}, nil)
	prepare(job.ControlOf(j))
	w := b.beginJob(k, j)
	w.wait(b.t)
	return w
}

func (b *rig) beginJob(k Kind, j *job.Job) *work {
	b.t.Helper()
	return b.beginHandler(NewHandler(k, b.scratch, nil, nil, nil, b.logger()), j)
}

// beginHandler calls a handler for a job.
func (b *rig) beginHandler(h job.Handler, j *job.Job) *work {
	b.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &work{
		Control: job.ControlOf(j),
		done:    make(chan struct{}), began: time.Now(), cancel: cancel,
	}
	go func() {
		defer close(w.done)
		w.result, w.err = h.Run(ctx, w.Job)
	}()
	b.t.Cleanup(func() {
		w.stop(job.Shutdown, 0)
		<-w.done
		w.Close()
	})
	return w
}

// run calls the handler and waits until it has returned.
func (b *rig) run(k Kind, payload string, saved *job.Progress) *work {
	b.t.Helper()
	w := b.begin(k, payload, saved)
	w.wait(b.t)
	return w
}

// stop stops the job as the worker does.
func (w *work) stop(reason job.Reason, left time.Duration) {
	w.cancel(&job.Stop{Reason: reason, Deadline: time.Now().Add(left)})
}

// patience bounds every wait: a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// wait waits until the handler has returned.
func (w *work) wait(t *testing.T) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		t.Fatalf("handler did not return within %s", patience)
	}
}

// until waits until something holds.
func (b *rig) until(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %s; log:\n%s", what, patience, b.log)
		}
	}
}

// demandNothingLeft demands that the folders of jobs that have ended go away: a removal that
// takes long on a busy machine continues beside the jobs.
func (b *rig) demandNothingLeft() {
	b.t.Helper()
	b.until("the scratch folder has its lock alone", func() bool {
		left, err := os.ReadDir(b.home())
		return err == nil && len(left) == 1
	})
}

// stateOf reads a reported state.
func stateOf(t *testing.T, p *job.Progress) string {
	t.Helper()
	switch {
	case p == nil:
		return ""
	case p.Stream == nil:
		return string(p.State)
	}
	stream, err := p.Stream()
	if err != nil {
		t.Fatalf("opening the state = %v", err)
	}
	defer func() { _ = stream.Close() }()
	data, err := io.ReadAll(stream)
	if err != nil {
		t.Fatalf("reading the state = %v", err)
	}
	return string(data)
}

// logLines collects log lines.
type logLines struct {
	mu    sync.Mutex
	lines []logLine
	text  bytes.Buffer
}

type logLine map[string]any

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := logLine{}
	if err := json.Unmarshal(p, &line); err != nil {
		return 0, err
	}
	l.lines = append(l.lines, line)
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// find returns all lines with that message.
func (l *logLines) find(msg string) []logLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []logLine
	for _, line := range l.lines {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

// printed returns what programs printed and was logged, by stream.
func (l *logLines) printed(stream string) []string {
	var all []string
	for _, line := range l.find("program output") {
		if line["stream"] == stream {
			all = append(all, line["text"].(string))
		}
	}
	return all
}

// roomy limits nothing that a test does.
var roomy = archive.Limits{Bytes: 1 << 30, Entries: 1000, Names: 1 << 20}

// withoutForks writes programs while no other process is started: a process that inherits
// the open file would make the start of the program fail with ETXTBSY.
func withoutForks(write func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return write()
}
