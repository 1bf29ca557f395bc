package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// TestExamplesOfWhatIsNotThere runs the producer's commands of the section of docs/jobs.md
// that says what to use in place of priorities, dependencies and schedules. The commands of
// spotctl there are in the scripts of cmd/spotctl.
func TestExamplesOfWhatIsNotThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What is not there\n")
	_, code, _ := strings.Cut(section, "```sh\n")
	code, _, found := strings.Cut(code, "```")
	if !found {
		t.Fatal("docs/jobs.md has no section with what is not there, and its code")
	}
	server := storage.New(storage.Options{})
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
	frames := filepath.Join(t.TempDir(), "frames.jsonl")
	if err := os.WriteFile(frames, []byte(`{"kind":"render","id":"frame-1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	today := time.Now().Format(time.DateOnly)
	place := strings.NewReplacer("$(date +%F)", today, "frames.jsonl", frames)
	for range 2 { // a second run puts the same ids
		commands := 0
		for line := range strings.SplitSeq(code, "\n") {
			for command := range strings.SplitSeq(line, "&&") {
				args := strings.Fields(strings.TrimSpace(place.Replace(command)))
				if len(args) == 0 || args[0] != "producer" {
					continue
				}
				commands++
				var out, messages bytes.Buffer
				if err := run(args[1:], strings.NewReader(""), &out, &messages); err != nil {
					t.Errorf("%s: %v\n%s", command, err, &messages)
				}
			}
		}
		if commands != 4 {
			t.Errorf("%d commands of producer, want 4", commands)
		}
	}
	for name, want := range map[string][]string{
		"spotworker-jobs-first": {"frame-7"}, "spotworker-jobs": {"frame-1", "film-7", "report-" + today},
	} {
		ids := map[string]bool{}
		for _, m := range server.Messages(name) {
			e, err := queue.Decode(m.Text)
			if err != nil {
				t.Fatal(err)
			}
			ids[e.ID] = true
		}
		for _, id := range want {
			if !ids[id] {
				t.Errorf("queue %s has %v, want %s", name, ids, id)
			}
		}
		if len(ids) != len(want) {
			t.Errorf("queue %s has %v, want %v", name, ids, want)
		}
	}
}
