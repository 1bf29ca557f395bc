// Package gpu gives each job GPUs of its own.
//
// A [Pool] knows the NVIDIA GPUs of this machine by /dev/nvidia0 and so on, or those that an operator
// lists. Jobs reserve them by number, and their programs find them in the variables that the libraries
// read. In a control group the kernel keeps a program from the others ([Visible]).
//
// A GPU that nvidia-smi reports as broken, or whose device is gone, is given to no job until that
// changes, and one that needs a reset by the kernel's log until it has had one. A job
// that has it runs on.
package gpu

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// checkEvery is the time between two looks at the GPUs. A driver may be installed after the worker
// has started.
const checkEvery = time.Minute

// Config describes the GPUs that jobs get.
type Config struct {
	// List names them by index, or by UUID as nvidia-smi does. Nil is all that are found, and an
	// empty list none.
	List []string

	// Lock locks a name against other workers of this machine, until release is called. Default:
	// there are none.
	Lock func(name string) (release func(), ok bool)

	// Hide says that programs are in control groups that show them the GPUs of their jobs alone.
	Hide bool

	// NotHidden is why programs can open the GPUs of others. It is logged when a GPU is found.
	NotHidden error

	// Log gets a line when a GPU breaks or comes back.
	Log *slog.Logger

	// Root has dev, proc and sys. Default: /.
	Root string
}

// Pool gives GPUs to jobs. A nil *Pool has none.
type Pool struct {
	Config
	stop   context.CancelFunc
	over   chan struct{}
	kernel *os.File // nil where it cannot be read

	mu      sync.Mutex
	devices []*device
	changed chan struct{}           // closed when a GPU may be free again, and replaced
	jobs    map[string]*reservation // by the job's id
}

type device struct {
	ID     string // as variables name it
	name   string // of the model; empty if it is not known
	fault  string // why no job gets it; empty for none
	xid    string // of the faults the one that the kernel reported
	place  *place // nil if it is not known
	taken  bool
	unlock func()
}

// String names a device in messages.
func (d *device) String() string {
	if d.name == "" {
		return d.ID
	}
	return fmt.Sprintf("%s (%s)", d.ID, d.name)
}

// reservation is what a job has, until all of its holders have left: its delivery, and its handler, which
// may outlive that.
type reservation struct {
	devices []*device
	holders int
}

// Open looks for the GPUs, and watches them until Close.
func Open(c Config) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := newPool(c)
	p.stop = cancel
	p.check(ctx)
	go func() {
		defer close(p.over)
		ticker := time.NewTicker(checkEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.check(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

func newPool(c Config) *Pool {
	if c.Root == "" {
		c.Root = "/"
	}
	return &Pool{Config: c, over: make(chan struct{}), changed: make(chan struct{}), jobs: map[string]*reservation{},
		kernel: openKernelLog(filepath.Join(c.Root, "dev", "kmsg"))}
}

// Close stops watching.
func (p *Pool) Close() {
	if p != nil {
		p.stop()
		<-p.over
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = p.kernel.Close() // nobody reads a closed file
	}
}

// Count returns how many GPUs jobs can get.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count()
}

func (p *Pool) count() (n int) {
	for _, d := range p.devices {
		if d.fault == "" {
			n++
		}
	}
	return n
}

// Reserve reserves n GPUs for a job until release is called. If others have them, changed is not
// nil, and is closed when some may be free. The error says that this machine has too few.
func (p *Pool) Reserve(id string, n int) (release func(), changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeXids()
	if has := p.count(); n > has {
		return nil, nil, fmt.Errorf("the job takes %d GPUs, and jobs can have %d of this machine", n, has)
	}
	r := &reservation{holders: 1}
	for _, d := range p.devices {
		if len(r.devices) < n && d.fault == "" && !d.taken && p.lock(d) {
			d.taken = true
			r.devices = append(r.devices, d)
		}
	}
	if len(r.devices) < n {
		r.free()
		return nil, p.changed, nil
	}
	p.jobs[id] = r
	return func() { p.leave(id, r) }, nil, nil
}

// lock locks a device against other workers.
func (p *Pool) lock(d *device) (ok bool) {
	if p.Lock == nil {
		return true
	}
	d.unlock, ok = p.Lock("gpu-" + strings.ReplaceAll(d.ID, "/", "_"))
	return ok
}

func (r *reservation) free() {
	for _, d := range r.devices {
		if d.taken = false; d.unlock != nil {
			d.unlock()
		}
	}
}

// Join returns the GPUs of a job, which keeps them until leave is called too.
func (p *Pool) Join(id string) (ids []string, leave func()) {
	if p == nil {
		return nil, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.jobs[id]
	if r == nil {
		return nil, func() {}
	}
	r.holders++
	for _, d := range r.devices {
		ids = append(ids, d.ID)
	}
	return ids, func() { p.leave(id, r) }
}

func (p *Pool) leave(id string, r *reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.holders--; r.holders > 0 {
		return
	}
	r.free()
	if p.jobs[id] == r {
		delete(p.jobs, id)
	}
	p.wake()
}

// wake has the jobs that wait try again. The caller holds the lock.
func (p *Pool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Faults says which GPUs are broken and why, in at most 200 bytes; empty for none.
func (p *Pool) Faults() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, d := range p.devices {
		if d.fault != "" {
			all = append(all, fmt.Sprintf("%v: %s", d, d.fault))
		}
	}
	return plaintext.Middle(strings.Join(all, "; "), 200)
}

// Variables are the variables that [Pool.Variables] can set.
var Variables = []string{"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"}

// Variables returns the variables of a program that has these GPUs. Without any they hide those
// that other jobs get.
func (p *Pool) Variables(ids []string) map[string]string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch all := strings.Join(ids, ","); {
	case all != "":
		if p.Hide { // the libraries count those that they can open
			all = "0"
			for i := 1; i < len(ids); i++ {
				all += "," + strconv.Itoa(i)
			}
		}
		// The order is that of nvidia-smi.
		return map[string]string{"CUDA_VISIBLE_DEVICES": all, "NVIDIA_VISIBLE_DEVICES": all, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
	case len(p.devices) > 0:
		return map[string]string{"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"}
	}
	return nil
}
