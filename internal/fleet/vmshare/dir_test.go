package vmshare

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A name is one worker's while it runs, and there are four workers at most.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "here")
	for _, name := range []string{"0", "1", "2", "blue_3"} {
		open(t, path, name)
	}
	_, err := Open(t.Context(), Config{Path: path, Instance: "1"})
	if inUse, ok := errors.AsType[*InUseError](err); !ok || inUse.Instance != "1" || !strings.Contains(err.Error(), "--instance") {
		t.Errorf("Open a name in use = %v, want an InUseError that names the flag", err)
	}
	_, err = Open(t.Context(), Config{Path: path, Instance: "4"})
	full, ok := errors.AsType[*FullError](err)
	if want := []string{"0", "1", "2", "blue_3"}; !ok || !slices.Equal(full.Running, want) ||
		!strings.Contains(err.Error(), "5 requests a second") {
		t.Errorf("Open a fifth = %v, want a FullError with the reason", err)
	}
	if free, err := isFree(filepath.Join(path, instancePrefix+"4")); !free || err != nil {
		t.Errorf("place of the fifth is free = %t, %v, want true", free, err)
	}
}

// TestFilesOfEndedWorkers: a new worker removes the files of ended workers, since each pod has
// a name of its own. Files of running workers and foreign files stay.
func TestFilesOfEndedWorkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	for _, pod := range []string{"a", "b", "c", "d", "e", "f"} {
		d, err := Open(t.Context(), Config{Path: path, Instance: pod})
		if err != nil {
			t.Fatal(err)
		}
		done, _, err := d.BeginWork(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done()
		d.Close()
	}
	foreign := filepath.Join(path, instancePrefix+"notes")
	if err := os.WriteFile(foreign, []byte(strings.Repeat("x", 33)), 0o600); err != nil {
		t.Fatal(err)
	}
	running := open(t, path, "running")
	done, _, err := running.BeginWork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := open(t, path, "new").Acknowledge(t.Context(), Event{ID: "1"}, true); err == nil {
		t.Error("Acknowledge while another worker has jobs succeeded, want a BusyError")
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), instancePrefix) || strings.HasPrefix(e.Name(), workPrefix) {
			got = append(got, e.Name())
		}
	}
	if want := []string{"instance-new", "instance-notes", "instance-running", "work-running"}; !slices.Equal(got, want) {
		t.Errorf("files = %v, want %v", got, want)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: file, Instance: "0"}); err == nil || !strings.Contains(err.Error(), "runtime folder") {
		t.Errorf("Open a file = %v, want an error about the runtime folder", err)
	}
	for _, name := range []string{"", "a-b", "a.b", "../0", "é", strings.Repeat("x", 33)} {
		if _, err := Open(t.Context(), Config{Path: t.TempDir(), Instance: name}); err == nil ||
			!strings.Contains(err.Error(), "letters, digits") {
			t.Errorf("Open as %q = %v, want an error that says what a name is", name, err)
		}
	}
}
