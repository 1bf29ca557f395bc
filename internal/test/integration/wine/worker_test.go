//go:build integration

package wine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// TestEviction has a worker do one job whole and give up another one at a Preempt
// event, which a second worker resumes.
func TestEviction(t *testing.T) {
	w, c := New(t), newCloud(t)
	bin := Build(t, "./cmd/worker", "./internal/test/integration/wine/program")
	kinds := kindsFile(t, bin, map[string]any{"count": map[string]any{"command": []string{"./program.exe", "count"}}})
	args := []string{"--kinds-file=" + w.Path(kinds), "--concurrency=2", "--checkpoint-interval=200ms"}
	program := filepath.Join(bin, "worker.exe")

	c.put("short", "count", "3")
	c.put("long", "count", "[60,30]")
	first := c.start(w, program, args...)
	await(t, "the short job done", func() bool { return c.record("short").Status == checkpoint.Done })
	await(t, "a checkpoint of the long job", func() bool { return c.record("long").HasState() })
	event, err := c.metadata.SimulateEviction(testVM)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the long job released", func() bool { return c.record("long").Status == checkpoint.Open })
	first.kill()
	c.metadata.Withdraw(event)

	c.start(w, program, args...)
	await(t, "the long job done", func() bool { return c.record("long").Status == checkpoint.Done })
	if got, want := c.result("short"), "0 to 3"; got != want {
		t.Errorf("result of the short job = %q, want %q", got, want)
	}
	if got := c.result("long"); got == "0 to 60" {
		t.Errorf("result of the long job = %q, want that it was resumed", got)
	}
	if r := c.record("long"); r.Interruptions != 1 || r.Failures != 0 {
		t.Errorf("the long job had %d interruptions and %d failures, want 1 and 0", r.Interruptions, r.Failures)
	}
}

// TestTwoWorkers has two workers on one machine, in a folder whose name is not plain. A
// third worker that takes the name of one of them is refused, and an eviction ends the
// jobs of both.
func TestTwoWorkers(t *testing.T) {
	w, c := New(t), newCloud(t)
	bin := filepath.Join(t.TempDir(), "Müllers Aufträge (neu)")
	if err := os.Rename(Build(t, "./cmd/worker", "./internal/test/integration/wine/program"), bin); err != nil {
		t.Fatal(err)
	}
	kinds := kindsFile(t, bin, map[string]any{"count": map[string]any{"command": []string{"./program.exe", "count"}}})
	instance := func(name string) *worker {
		return c.start(w, filepath.Join(bin, "worker.exe"), "--kinds-file="+w.Path(kinds), "--concurrency=1",
			"--instance="+name, `--runtime-dir=C:\ProgramData\läuft`, `--scratch=C:\ProgramData\Ordner der Aufträge`)
	}

	c.put("a", "count", "100000")
	c.put("b", "count", "100000")
	instance("0")
	instance("1")
	for _, id := range []string{"a", "b"} {
		await(t, "a checkpoint of job "+id, func() bool { return c.record(id).HasState() })
	}
	third := instance("0")
	<-third.ended
	if code := third.cmd.ProcessState.ExitCode(); code != 78 || !third.says("another worker on this VM runs as instance 0") {
		t.Errorf("a second worker named 0 = exit code %d, want 78 and why", code)
	}
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		await(t, "job "+id+" released", func() bool { return c.record(id).Status == checkpoint.Open })
	}
}
