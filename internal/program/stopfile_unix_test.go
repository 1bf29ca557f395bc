//go:build unix

package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// TestStopFileIsWhole: a program that looks for the stop file all the time, as one that polls
// it may, never reads a part of it. Nothing else that has the file's name before is changed.
func TestStopFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	f := &folder{Folder: &scratch.Folder{Dir: dir}, stop: filepath.Join(dir, "stop")}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("the program's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(other, f.stop); err != nil {
		t.Fatal(err)
	}
	note := noteOf(&job.Stop{Reason: job.Reason(strings.Repeat("x", 256<<10))}, time.Second) // long, so that writing it takes time
	if err := f.writeStop(note); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(other); string(data) != "the program's own" || err != nil {
		t.Errorf("the file that was there = %q, %v, want it unchanged", data, err)
	}
	want, err := json.Marshal(note)
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !over.Load() {
			data, err := os.ReadFile(f.stop)
			if err == nil && string(data) != string(want)+"\n" {
				t.Errorf("stop file has %d bytes, want all %d", len(data), len(want)+1)
				return
			}
		}
	})
	for range 100 {
		_ = os.Remove(f.stop)
		if err := f.writeStop(note); err != nil {
			t.Error(err)
			break
		}
	}
	over.Store(true)
	reader.Wait()
}
