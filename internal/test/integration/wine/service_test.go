//go:build integration

package wine

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// outcome runs a command to its end and returns its output and its exit code.
func (w *Windows) outcome(program string, args ...string) (said string, code int) {
	w.t.Helper()
	cmd := w.Command(program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second // a service that was started with it may hold the pipe
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), exit.ExitCode()
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		w.t.Fatalf("%s %v: %v\n%s", program, args, err, &out)
	}
	return out.String(), 0
}

// want runs a command and checks its exit code and a part of its output.
func (w *Windows) want(code int, text, program string, args ...string) {
	w.t.Helper()
	said, got := w.outcome(program, args...)
	// Wine waits 10 s for a service to report, which a busy machine may miss.
	for tries := 1; strings.Contains(said, "Service request timeout") && tries < 3; tries++ {
		said, got = w.outcome(program, args...)
	}
	if got != code || !strings.Contains(said, text) {
		w.t.Fatalf("%s %v = exit code %d, want %d, and %q in:\n%s", filepath.Base(program), args, got, code, text, said)
	}
}

// settings writes a worker.env with the addresses of the cloud and more lines.
func (c *cloud) settings(path string, lines ...string) {
	c.t.Helper()
	lines = append(
		lines, "AZURE_STORAGE_CONNECTION_STRING="+c.connection, "SPOTWORKER_METADATA_ENDPOINT="+c.endpoint, "SPOTWORKER_LISTEN=127.0.0.1:0",
		"SPOTWORKER_CHECKPOINT_INTERVAL=200ms", "SPOTWORKER_CONCURRENCY=2", "# end of worker.env", "",
	)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\r\n")), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// registryHas reports whether the registry has a key.
func (w *Windows) registryHas(key string) bool {
	_, code := w.outcome("reg", "query", `HKLM\SYSTEM\CurrentControlSet\Services\`+key)
	return code == 0
}

// TestService installs the worker as a service from a folder with a blank and an
// umlaut, stops it in the middle of a job, starts it again, and removes it.
func TestService(t *testing.T) {
	t.Parallel()
	w, c := New(t), newCloud(t)
	bin := filepath.Join(t.TempDir(), "Jörgs worker")
	if err := os.Rename(Build(t, "./cmd/worker", "./internal/test/integration/wine/program"), bin); err != nil {
		t.Fatal(err)
	}
	worker := filepath.Join(bin, "worker.exe")
	kinds := kindsFile(t, bin, map[string]any{"count": map[string]any{"command": []string{"./program.exe", "count"}}})
	settings, broken := filepath.Join(bin, "worker.env"), filepath.Join(bin, "broken.env")
	c.settings(settings, "SPOTWORKER_KINDS_FILE="+w.Path(kinds), "SPOTWORKER_DRAIN_BUDGET=7s")
	c.settings(broken)

	w.want(1, "there is no such service", worker, "service", "status")
	w.want(1, "the service manager alone runs this command", worker, "service", "run")
	w.want(0, "service spotworker is installed", worker, "service", "install", "--environment-file", w.Path(settings))
	if said, _ := w.outcome("reg", "query", `HKLM\SYSTEM\CurrentControlSet\Services\spotworker`, "/v",
		"PreshutdownTimeout"); !strings.Contains(said, "0x6978") {
		t.Errorf("pre-shutdown time-out = %s, want 27 s, the drain budget and 20 s", said)
	}
	w.want(0, "service spotworker runs", worker, "service", "start")
	w.want(0, "RUNNING", worker, "service", "status")
	w.want(0, "service spotworker runs", worker, "service", "start") // of a running service

	c.put("long", "count", "[100,50]")
	await(t, "a checkpoint of the job", func() bool { return c.record("long").HasState() })
	w.want(0, "its jobs are handed over", worker, "service", "stop")
	if r := c.record("long"); r.Status != checkpoint.Open || r.Interruptions != 1 || r.Failures != 0 {
		t.Errorf("after the stop the job is %s with %d interruptions and %d failures, want open, 1 and 0", r.Status, r.Interruptions, r.Failures)
	}
	w.want(1, "STOPPED", worker, "service", "status")
	log, err := os.ReadFile(w.DriveC(`ProgramData\spotworker\logs\spotworker.log`))
	if err != nil || bytes.Count(log, []byte(`"msg":"drained"`)) != 1 {
		t.Errorf("the log has %d drains, %v, want 1:\n%s", bytes.Count(log, []byte(`"msg":"drained"`)), err, log)
	}

	w.want(0, "is installed", worker, "service", "install", "--environment-file", w.Path(broken)) // changes it
	w.want(78, "does not start (exit code 78)", worker, "service", "start")
	w.want(1, "exit code: 1066 (of the worker: 78)", worker, "service", "status")

	w.want(0, "is installed", worker, "service", "install", "--environment-file", w.Path(settings))
	w.want(0, "", "net", "start", "spotworker")
	await(t, "the job done", func() bool { return c.record("long").Status == checkpoint.Done })
	if got := c.result("long"); got == "0 to 100" {
		t.Errorf("result = %q, want that it was resumed", got)
	}
	w.want(0, "service spotworker is removed", worker, "service", "uninstall")
	w.want(1, "there is no such service", worker, "service", "stop")
	for _, key := range []string{"spotworker", `EventLog\Application\spotworker`} {
		if w.registryHas(key) {
			t.Errorf("%s is left in the registry", key)
		}
	}
}
