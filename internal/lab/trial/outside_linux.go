package trial

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// outsideScript starts a worker whose program sees the folders in $3 and after as they are
// now, and whose changes in them end with the worker, as with a VM.
//
//go:embed outside.sh
var outsideScript string

// outside keeps the writes of each VM outside of the job's folder apart from those of other
// VMs, with a mount namespace and overlays.
type outside struct {
	folder  string   // of the trial
	folders []string // that each VM has of its own
	script  string
}

// probeLimit bounds the attempt to make a namespace.
const probeLimit = 10 * time.Second

// newOutside returns nil with a reason if this machine allows no namespace.
func newOutside(ctx context.Context, folder string) (*outside, string) {
	o := &outside{folder: folder, script: filepath.Join(folder, "outside.sh")}
	for _, dir := range append([]string{"/tmp", "/var/tmp", "/dev/shm", os.Getenv("HOME")}, homes()...) {
		place, err := filepath.EvalSymlinks(dir)
		if err == nil && place != "/" && !slices.Contains(o.folders, place) {
			o.folders = append(o.folders, place)
		}
	}
	if err := os.WriteFile(o.script, []byte(outsideScript), 0o600); err != nil {
		return nil, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	words := o.command("/bin/true")
	said, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput() //nolint:gosec // our own script
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		return nil, strings.TrimSpace(fmt.Sprintf("%v: %s", err, lines[len(lines)-1]))
	}
	return o, ""
}

// homes returns the home of the user, as programs find it that ignore HOME.
func homes() []string {
	if me, err := user.Current(); err == nil && me.HomeDir != "" {
		return []string{me.HomeDir}
	}
	return nil
}

// command returns the command that starts a worker in a namespace of its own. The process
// stays the same.
func (o *outside) command(worker string) []string {
	return append([]string{"/bin/sh", o.script, o.folder, worker, strconv.Itoa(len(o.folders))}, o.folders...)
}

// files returns the files that a VM's program has written outside of its folder, with their
// sizes.
func (o *outside) files(pid int) map[string]int64 {
	if o == nil {
		return nil
	}
	found := map[string]int64{}
	for i, folder := range o.folders {
		upper := filepath.Join(fmt.Sprintf("/proc/%d/root", pid), o.folder, "stage", strconv.Itoa(pid), "u"+strconv.Itoa(i))
		_ = filepath.WalkDir(upper, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return fs.SkipDir
			}
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				rel, _ := filepath.Rel(upper, name)
				found[filepath.Join(folder, rel)] = info.Size()
			}
			if len(found) >= maxEntries {
				return fs.SkipAll
			}
			return nil
		})
	}
	return found
}
