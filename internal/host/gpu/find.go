package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	if p.NotHidden != nil && len(p.devices) == 0 && len(found) > 0 {
		p.Log.WarnContext(ctx, "programs can open all GPUs of this VM: only variables separate jobs", "error", p.NotHidden)
	}
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
		d.ID, d.name, d.place = f.ID, cmp.Or(f.name, d.name), cmp.Or(d.place, f.place)
		if p.Hide && d.place == nil {
			f.fault = cmp.Or(f.fault, "its device is not known: the driver does not list it in /proc/driver/nvidia/gpus")
		}
		p.set(d, cmp.Or(d.xid, f.fault))
	}
	p.takeXids()
	p.wake()
}

// set sets why no job gets a GPU.
func (p *Pool) set(d *device, fault string) {
	was := d.fault
	d.fault = fault
	switch {
	case was == "" && fault != "":
		p.Log.Warn("GPU is broken; no job gets it until that changes. If it stays, delete this VM",
			"resource", "GPU "+d.String(), "error", fault)
	case was != "" && fault == "":
		p.Log.Info("GPU works again", "resource", "GPU "+d.String())
	}
}

// find returns the GPUs of this machine, or those of the list.
func (p *Pool) find() (found []*device) {
	ids, has, places := p.List, len(p.minors()), p.places()
	if ids == nil {
		for i := range has {
			ids = append(ids, strconv.Itoa(i))
		}
	}
	for _, id := range ids {
		d := &device{ID: id, place: placeOf(id, places)}
		if i, err := strconv.Atoi(id); err == nil && has > 0 && i >= has { // where none is found, the list is trusted
			d.fault = fmt.Sprintf("this machine has %d", has)
		}
		found = append(found, d)
	}
	return found
}

// IsPart reports whether an id is that of a part of a GPU (MIG).
func IsPart(id string) bool { return strings.HasPrefix(id, "MIG-") }

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
		if d.fault != "" || IsPart(d.ID) { // it takes no id of a part
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
