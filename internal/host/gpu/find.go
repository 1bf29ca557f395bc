package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/text/lazyregexp"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// check looks at the GPUs, and gives no job one that is broken.
func (p *Pool) check(ctx context.Context) {
	found := p.find()
	examine(ctx, found)
	if ctx.Err() != nil {
		return // before nvidia-smi had answered
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if !slices.ContainsFunc(found, func(f *device) bool { return f.ID == d.ID }) {
			found = append(found, &device{ID: d.ID, fault: "its device is gone"})
		}
	}
	for _, f := range found {
		i := slices.IndexFunc(p.devices, func(d *device) bool { return f.ID == d.ID })
		if i < 0 {
			i, p.devices = len(p.devices), append(p.devices, &device{})
		}
		d := p.devices[i]
		was := d.fault
		d.ID, d.name, d.fault = f.ID, cmp.Or(f.name, d.name), f.fault
		switch {
		case was == "" && d.fault != "":
			p.Log.WarnContext(ctx, "GPU is broken; no job gets it until that changes. If it stays, delete this VM",
				"resource", "GPU "+d.String(), "error", d.fault)
		case was != "" && d.fault == "":
			p.Log.InfoContext(ctx, "GPU works again", "resource", "GPU "+d.String())
		}
	}
	p.wake()
}

// find returns the GPUs of this machine, or those of the list.
func (p *Pool) find() (found []*device) {
	has := 0
	entries, _ := os.ReadDir(filepath.Join(p.Root, "dev"))
	for _, entry := range entries {
		if nvidiaDevice().MatchString(entry.Name()) {
			has++
		}
	}
	if p.List == nil {
		for i := range has {
			found = append(found, &device{ID: strconv.Itoa(i)})
		}
		return found
	}
	for _, id := range p.List {
		d := &device{ID: id}
		if i, err := strconv.Atoi(id); err == nil && has > 0 && i >= has { // where none is found, the list is trusted
			d.fault = fmt.Sprintf("this machine has %d", has)
		}
		found = append(found, d)
	}
	return found
}

var nvidiaDevice = lazyregexp.New(`^nvidia[0-9]+$`)

// checkTimeout bounds a look at all GPUs. nvidia-smi waits for a driver that hangs.
const checkTimeout = 30 * time.Second

// lost matches what nvidia-smi prints in place of the name of a GPU that it cannot reach.
var lost = lazyregexp.New(`(?i)ERR!|unknown error|is lost|reset required|unable to determine`)

// examine sets names and faults of GPUs, where there is nvidia-smi.
func examine(ctx context.Context, devices []*device) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, d := range devices {
		if d.fault != "" || strings.HasPrefix(d.ID, "MIG-") { // it takes no id of a part
			continue
		}
		name, err := ask(ctx, program, "--id="+d.ID, "--query-gpu=name", "--format=csv,noheader")
		switch {
		case err != nil:
			d.fault = err.Error()
		case name == "" || lost().MatchString(name):
			d.fault = "nvidia-smi says: " + cmp.Or(name, "nothing")
		default:
			d.name = name
		}
	}
}

// short makes a text short enough for a line about several devices.
func short(text string) string {
	const most = 100
	return plaintext.Middle(plaintext.Line(strings.TrimSpace(text)), most)
}

// ask runs nvidia-smi. It does not wait for one that cannot be killed.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // of this machine
	cmd.WaitDelay = time.Second
	if runtime.GOOS != "windows" {
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	}
	var out []byte
	ended := make(chan error, 1)
	go func() {
		text, err := cmd.CombinedOutput()
		out = text
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil && ctx.Err() == nil {
			return "", fmt.Errorf("nvidia-smi fails (%w): %s", err, short(string(out)))
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return "", errors.New("nvidia-smi does not answer")
	}
	return short(string(out)), nil
}
