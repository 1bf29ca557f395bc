package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// place is where a GPU is on this machine.
type place struct {
	pci   string // its address without the function, such as 0001:00:00; empty if it is not known
	uuid  string // as nvidia-smi shows it; empty if it is not known
	minor uint32 // of /dev/nvidia0 and so on
	nodes []node // that nvidia-drm makes for it in /dev/dri
}

// node is a character device.
type node struct{ major, minor uint32 }

// places returns the places of GPUs by index: nvidia-smi counts in the order of PCI addresses.
// Without the driver's files in /proc they are in the order of their devices.
func (p *Pool) places() (all []*place) {
	files, _ := filepath.Glob(filepath.Join(p.Root, "proc", "driver", "nvidia", "gpus", "*", "information"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		address, at := filepath.Base(filepath.Dir(file)), &place{uuid: fields["GPU UUID"]}
		at.pci, _, _ = strings.Cut(address, ".")
		if _, err := fmt.Sscan(fields["Device Minor"], &at.minor); err != nil {
			continue
		}
		inDRI, _ := filepath.Glob(filepath.Join(p.Root, "sys", "bus", "pci", "devices", address, "drm", "*", "dev"))
		for _, name := range inDRI {
			var n node
			text, _ := os.ReadFile(name)
			if _, err := fmt.Sscanf(string(text), "%d:%d", &n.major, &n.minor); err == nil {
				at.nodes = append(at.nodes, n)
			}
		}
		all = append(all, at)
	}
	if len(all) == 0 {
		for _, minor := range p.minors() {
			all = append(all, &place{minor: minor})
		}
	}
	return all
}

// minors returns the numbers in the names of GPUs in /dev.
func (p *Pool) minors() (all []uint32) {
	names, _ := filepath.Glob(filepath.Join(p.Root, "dev", "nvidia[0-9]*"))
	for _, name := range names {
		if n, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(name), "nvidia"), 10, 20); err == nil {
			all = append(all, uint32(n))
		}
	}
	slices.Sort(all)
	return all
}

// placeOf returns the place of the GPU with this index or UUID, nil if it is not known.
func placeOf(id string, all []*place) *place {
	i, err := strconv.Atoi(id)
	if err != nil {
		i = slices.IndexFunc(all, func(at *place) bool { return at.uuid == id })
	}
	if i < 0 || i >= len(all) {
		return nil
	}
	return all[i]
}

// Visible are the GPUs of this machine that the programs of a control group can open.
type Visible struct {
	own    []node
	others []node // less own, and beside all GPUs in /dev
}

// Visible returns what the program of a job with these GPUs can open, nil for everything.
func (p *Pool) Visible(ids []string) *Visible {
	if p == nil || !p.Hide {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &Visible{}
	for _, d := range p.devices {
		if slices.Contains(ids, d.ID) && d.place != nil {
			v.own = append(append(v.own, node{nvidiaMajor, d.place.minor}), d.place.nodes...)
		}
	}
	for _, at := range p.places() {
		v.others = append(v.others, at.nodes...)
	}
	return v
}

const (
	nvidiaMajor  = 195 // of NVIDIA's devices
	sharedMinors = 254 // the first minor of those that belong to no GPU: nvidia-modeset and nvidiactl
)
