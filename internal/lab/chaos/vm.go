package chaos

import (
	"fmt"
	"os"
	"slices"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
)

// vm is a simulated VM: a worker process and its proxy.
type vm struct {
	name     string
	proxy    *proxy
	worker   *lab.VM
	programs bool // its worker has the kind that others lack
	busy     bool // it has an incident; guarded by the run
}

// hasPrograms reports whether the nth of the first workers can run programs. A
// replacement has the abilities of the worker that it replaces.
func (c Config) hasPrograms(n int) bool {
	return c.LackEvery == 0 || n%c.LackEvery != c.LackEvery-1
}

// keptLogs is how many workers' logs are kept.
const keptLogs = 400

// addVM starts a worker on a VM of its own.
func (r *chaos) addVM(programs bool) error {
	r.mu.Lock()
	r.started++
	v := &vm{name: vmName(r.started), programs: programs, busy: true}
	old := r.started - keptLogs
	r.mu.Unlock()

	var err error
	if v.proxy, err = startProxy(v.name, r.config.ConnectionString, r.stores.Names, r.recorder, r.transport, r.over); err != nil {
		return err
	}
	r.mu.Lock()
	r.present = append(r.present, v)
	r.mu.Unlock()
	r.recorder.started(v.name, r.config.JobsAtOnce, programs)
	r.local.AddVM(imds.VM{Name: v.name, ScaleSet: "chaos"})
	if v.worker, err = r.fleet.Start(v.name); err != nil {
		v.proxy.close()
		return err
	}
	if old > 0 {
		_ = os.Remove(fmt.Sprintf("%s/%s.log", r.folder, vmName(old))) // another process may have it open
	}
	r.release(v)
	return nil
}

func vmName(n int) string { return fmt.Sprintf("chaos_%d", n) }

// storageFor returns the connection string of a VM's proxy.
func (r *chaos) storageFor(name string) string {
	if v := r.vm(name); v != nil {
		return v.proxy.connectionString
	}
	return "" // the fleet refuses it
}

// argsFor returns the flags of one VM's worker.
func (r *chaos) argsFor(name string) []string {
	args := []string{traceFlag + r.traceOf(name)}
	if v := r.vm(name); v != nil && v.programs {
		args = append(args, "--kinds-file="+r.kindsFile)
	}
	return args
}

func (r *chaos) vm(name string) *vm {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.present {
		if v.name == name {
			return v
		}
	}
	return nil
}

// onEnd records a worker that exited unexpectedly.
func (r *chaos) onEnd(worker *lab.VM, err error) {
	r.fault("worker %s exited unexpectedly (%v), see %s", worker.Name, err, worker.LogFile)
}

// victim returns a VM whose worker holds a message, and keeps other incidents from
// it until it is released; nil if there is none.
func (r *chaos) victim() *vm {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := r.random.Perm(len(r.present))
	for _, i := range order {
		if v := r.present[i]; !v.busy && r.recorder.held(v.name) > 0 {
			v.busy = true
			return v
		}
	}
	return nil
}

// release ends the incident of a VM.
func (r *chaos) release(v *vm) {
	r.recorder.incidentEnds(v.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	v.busy = false
}

// remove removes a VM whose worker has ended, and starts a replacement.
func (r *chaos) remove(v *vm) {
	r.mu.Lock()
	r.present = slices.DeleteFunc(r.present, func(other *vm) bool { return other == v })
	r.mu.Unlock()
	r.local.Metadata.RemoveVM(v.name)
	v.proxy.close()
	if err := r.addVM(v.programs); err != nil {
		r.fault("cannot replace worker %s: %v", v.name, err)
	}
}
