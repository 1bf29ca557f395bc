package program

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/program/tree"
)

// TestKilledProgram: the error of a program that was killed names the killer, and the
// most frequent cause.
func TestKilledProgram(t *testing.T) {
	const killed = "the command was killed (SIGKILL), not by the worker; most often out of memory"
	for _, tt := range []struct {
		name string
		end  ended
		want string
	}{
		{"killed by another", ended{exit: tree.Exit{Code: -1, By: "signal SIGKILL"}}, killed},
		{"its child was killed", ended{exit: tree.Exit{Code: 137}}, killed},
		{"out of memory", ended{exit: tree.Exit{Code: -1, By: "signal SIGKILL"}, oomKills: 2},
			killed + " (the kernel ended 2 processes for that while it ran)"},
		{"out of its total memory", ended{exit: tree.Exit{Code: 137, OOMKills: 3}, oomKills: 4},
			"the command was killed: its processes together exceeded the memory of its kind (the kernel ended 3 of them)"},
		{"killed by the worker", ended{exit: tree.Exit{Code: -1, By: "signal SIGKILL"}, killed: true},
			"the command did not stop in time and was killed"},
		{"another signal", ended{exit: tree.Exit{Code: -1, By: "signal SIGSEGV"}}, "the command was ended by signal SIGSEGV"},
		{"killed by the worker while another one was out of memory",
			ended{exit: tree.Exit{Code: -1, By: "signal SIGKILL"}, killed: true, oomKills: 1}, "the command did not stop in time and was killed"},
		{"a failure", ended{exit: tree.Exit{Code: 1}, oomKills: 1}, "the command exited with code 1"},
	} {
		if got := endError(tt.end, false).Error(); got != tt.want {
			t.Errorf("%s: error = %q, want %q", tt.name, got, tt.want)
		}
		if got, want := tt.end.isMemoryKill(), strings.HasPrefix(tt.name, "out of"); got != want {
			t.Errorf("%s: counts as killed for lack of memory: %t, want %t", tt.name, got, want)
		}
	}
}

// TestFullDiskIsMeasured: the error of a full disk says where and how full, and is still
// the error of a full disk; other errors stay as they are.
func TestFullDiskIsMeasured(t *testing.T) {
	folder := t.TempDir()
	full := fmt.Errorf("make the job's folder: %w", errDiskFull)
	got := withSpace(folder, full)
	if text := got.Error(); !strings.HasPrefix(text, "no space in "+folder) || !errors.Is(got, errDiskFull) {
		t.Errorf("error = %q, want one that names %s", text, folder)
	}
	if free, size := resource.Space(folder); size > 0 && free >= 0 && !strings.Contains(got.Error(), " MB free): ") {
		t.Errorf("error = %q, want how much is free", got)
	}
	if got := withSpace(filepath.Join(folder, "gone"), full).Error(); !strings.HasPrefix(got, "no space in ") ||
		strings.Contains(got, "MB free") {
		t.Errorf("error without a measurement = %q", got)
	}
	if other := syscall.EACCES; !errors.Is(withSpace(folder, other), other) || withSpace(folder, other).Error() != other.Error() {
		t.Errorf("error = %q, want it unchanged", withSpace(folder, other))
	}
}

// TestNoticesAreRare: of many jobs that a machine cannot run, one line a minute.
func TestNoticesAreRare(t *testing.T) {
	var n notices
	begun := time.Now()
	lines, suppressed := 0, 0
	for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
		if due, more := n.allow(begun.Add(at)); due {
			lines++
			suppressed += more
		}
	}
	if lines != 10 || suppressed != 9*59 {
		t.Errorf("%d lines and %d suppressed, want 10 and %d", lines, suppressed, 9*59)
	}
}
