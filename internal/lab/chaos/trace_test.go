package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// TestTrace: a handler's trace is read as its runs; the trace of a killed worker up to
// its death.
func TestTrace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "vm.trace")
	rest, trace, err := takeTraceFlag([]string{"--visibility=4s", traceFlag + name, "--log-format=json"})
	if err != nil || !slices.Equal(rest, []string{"--visibility=4s", "--log-format=json"}) {
		t.Fatalf("flags %q, %v, want those of the worker", rest, err)
	}
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	trace.addAt(traceBegan, "a", 0, at(0))
	trace.addAt(traceBegan, "b", 3, at(5))
	trace.addAt(traceStep, "a", 1, at(50))
	trace.addAt(traceEnded, "a", 0, at(60))
	trace.addAt(traceBegan, "a", 1, at(70))
	trace.addAt(traceStep, "b", 4, at(80))
	trace.addAt(traceStep, "a", 2, at(120))
	trace.addAt(traceEnded, "a", 1, at(130))
	if _, err := trace.file.WriteString("S b 5"); err != nil { // cut off by the kill
		t.Fatal(err)
	}
	if err := trace.file.Close(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]oracle.Run{}
	if err := readTrace(name, at(125), got); err != nil {
		t.Fatal(err)
	}
	want := map[string][]oracle.Run{
		"a": {
			{Began: at(0), Ended: at(60), Steps: []time.Time{at(50)}},
			{Began: at(70), Ended: at(125), From: 1, Steps: []time.Time{at(120)}}, // it died before it returned
		},
		"b": {{Began: at(5), Ended: at(125), From: 3, Steps: []time.Time{at(80)}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got)\n%s", diff)
	}
	if err := readTrace(filepath.Join(t.TempDir(), "none"), time.Time{}, got); err != nil {
		t.Errorf("a worker without jobs: %v, want no error", err)
	}
	if err := os.WriteFile(name, []byte("S a 1 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readTrace(name, time.Time{}, got); err == nil {
		t.Error("a step before the run began: no error")
	}
}
