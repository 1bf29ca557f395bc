package workercmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onEvent writes a program for --on-event, and returns its path and the file with what
// the program got.
func onEvent(t *testing.T) (program, got string) {
	t.Helper()
	program, got = filepath.Join(t.TempDir(), "on-event"), filepath.Join(t.TempDir(), "got")
	// One write for each event, since the program may run more than once at a time.
	text := fmt.Sprintf("#!/bin/sh\nline=$(cat)\nprintf '%%s %%s\\n' \"$SPOTWORKER_EVENT\" \"$line\" >>'%s'\n", got)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, got
}

// TestOnEvent: the program hears of a job in the poison queue, of the notice and of the
// drain, also when the worker ends right after it. It gets no credentials.
func TestOnEvent(t *testing.T) {
	c := newCloud(t, true)
	program, got := onEvent(t)
	c.put(t, "bad", "refused")
	w := c.start(t, "--on-event="+program, "--concurrency=1")
	heard := func(event, text string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			data, _ := os.ReadFile(got) // not there before the first event
			for line := range strings.Lines(string(data)) {
				if strings.HasPrefix(line, event+" {") && strings.Contains(line, text) && strings.Contains(line, `"worker":"`) {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("the program did not hear of %s with %s; it got\n%s", event, text, data)
			}
		}
	}
	heard("poison", `"job_id":"bad"`)
	c.put(t, "a", "polite")
	w.untilOf(t, "job started", "a") // the first job started too
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	heard("notice", `"event_type":"Preempt"`)
	heard("drained", `"released":1`)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if data, _ := os.ReadFile(got); strings.Contains(string(data), "AccountKey") {
		t.Errorf("the program got a key:\n%s", data)
	}
	if failed := w.find("program for events failed"); len(failed) > 0 {
		t.Errorf("the program failed: %v", failed)
	}

	fresh := newCloud(t, true).working(t, "polite", "--on-event="+program)
	if err := os.Remove(got); err != nil {
		t.Fatal(err)
	}
	fresh.terminate(t)
	if end := fresh.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	heard("drained", `"released":1`)
}

// TestOnEventDoesNotDelay: a program that hangs delays no hand-over, and the end of the worker
// by a few seconds at most.
func TestOnEventDoesNotDelay(t *testing.T) {
	c := newCloud(t, true)
	program := filepath.Join(t.TempDir(), "on-event")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := c.working(t, "polite", "--on-event="+program)
	if _, err := c.metadata.SimulateEviction(testVM); err != nil {
		t.Fatal(err)
	}
	w.until(t, "drained")
	c.demandReleased(t)
	w.terminate(t)
	if end := w.end(t); end.ExitCode() != 0 {
		t.Errorf("worker ended with %s, want exit code 0", end)
	}
	if failed := w.find("program for events failed"); len(failed) == 0 {
		t.Error("the log does not say that the program was killed")
	}
}

// TestOnEventRefused: a program that cannot be run, or an address, is a wrong configuration.
func TestOnEventRefused(t *testing.T) {
	c := newCloud(t, true)
	for receiver, want := range map[string]string{
		filepath.Join(t.TempDir(), "missing"): "--on-event cannot run its program",
		"https://127.0.0.1:1/T0SECRET":        "a program that calls curl",
	} {
		cmd := exec.Command("testworker", "--on-event="+receiver, "--metadata-endpoint=none", "--listen=none")
		cmd.Env = c.environment(nil)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 78 {
			t.Errorf("%s: worker ended with %v, want exit code 78", receiver, err)
		}
		if text := string(out); !strings.Contains(text, want) || strings.Contains(text, "T0SECRET") {
			t.Errorf("%s: log = %s, want %q and no secret", receiver, text, want)
		}
	}
}
