//go:build integration

package wine

import (
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
)

// TestEviction has a worker do one job whole and give up another one at a Preempt
// event, which a second worker resumes.
func TestEviction(t *testing.T) {
	w, c := New(t), newCloud(t)
	bin := Build(t, "./cmd/worker", "./internal/integration/wine/program")
	kinds := kindsFile(t, bin, map[string]any{"count": map[string]any{"command": []string{"./program.exe", "count"}}})
	args := []string{"--kinds-file=" + w.Path(kinds), "--concurrency=2", "--checkpoint-interval=200ms"}
	program := filepath.Join(bin, "worker.exe")

	c.put("short", "count", "3")
	c.put("long", "count", "60")
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
