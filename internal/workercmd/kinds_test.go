package workercmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// TestBuiltin: a built-in kind is there when its containers are named.
func TestBuiltin(t *testing.T) {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: "AccountName=x;AccountKey=bm90IGEga2V5;" +
		"BlobEndpoint=http://127.0.0.1:1/x;QueueEndpoint=http://127.0.0.1:1/x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags flags
		want  []string
	}{
		{flags{}, nil},
		{flags{DataContainer: []string{"data"}}, []string{"digest"}},
	} {
		kinds := c.flags.builtin(account, slog.New(slog.DiscardHandler))
		if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, c.want) {
			t.Errorf("built-in kinds with data %q = %q, want %q", c.flags.DataContainer, got, c.want)
		}
	}
}

// TestProgramsShareUser: cached inputs are verified unless programs have users of their own.
func TestProgramsShareUser(t *testing.T) {
	for given, want := range map[string]bool{"none": true, "": true, "wrong": true, "900000-900100": false} {
		f := flags{ProgramUsers: given}
		if got := f.programsShareUser(); got != want {
			t.Errorf("--program-users %q: programs share the worker's user: %t, want %t", given, got, want)
		}
	}
}

// TestAbsentPathOfACommand: a path in a command that does not exist is logged with its kind
// when the worker starts, and refuses no kind: it may come later.
func TestAbsentPathOfACommand(t *testing.T) {
	folder := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	absent, there := filepath.Join(folder, "absent.py"), filepath.Join(folder, "there.py")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"kinds": map[string]any{
		"late":  map[string]any{"command": []string{self, absent, "relative.py"}},
		"shell": map[string]any{"command": []string{self, "-c", filepath.Join(folder, "other") + " --all"}},
		"whole": map[string]any{"command": []string{self, there, folder}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	f := flags{KindsFile: filepath.Join(folder, "kinds.json"), Scratch: t.TempDir(), ProgramUsers: "none"}
	if err := os.WriteFile(f.KindsFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	kinds, _, closeKinds, err := f.commands(nil, nil, nil, &telemetry{}, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	closeKinds()
	if len(kinds) != 3 {
		t.Errorf("kinds = %v, want all three", slices.Sorted(maps.Keys(kinds)))
	}
	var warned []string
	for text := range strings.Lines(log.String()) {
		var line struct{ Level, Kind, File string }
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line.File != "" {
			warned = append(warned, line.Level+" "+line.Kind+" "+line.File)
		}
	}
	if want := []string{"WARN late " + absent}; !slices.Equal(warned, want) {
		t.Errorf("warnings about paths = %q, want %q", warned, want)
	}
}

// TestRefused: after exit code 78 nobody starts the worker again, so it is for refusals alone.
func TestRefused(t *testing.T) {
	for want, errs := range map[int][]error{
		cli.ExitFailed: {
			&os.PathError{Op: "mkdir", Path: "x", Err: syscall.ENOSPC}, syscall.EMFILE, syscall.EADDRNOTAVAIL,
			fmt.Errorf("kinds: %w", snapshot.ErrLost), &passing{errTest}, &vmshare.InUseError{}, &vmshare.FullError{},
		},
		cli.ExitConfig: {errTest, fs.ErrPermission, fs.ErrNotExist},
	} {
		for _, err := range errs {
			if got := cli.Code(refused(fmt.Errorf("check: %w", err))); got != want {
				t.Errorf("exit code of %v = %d, want %d", err, got, want)
			}
		}
	}
}
