package chaos

import (
	"fmt"
	"os"

	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab"
)

// vm is a worker process, and its way to storage.
type vm struct {
	name     string
	door     *door
	worker   *lab.VM
	programs bool // its worker has the kind that others lack
	busy     bool // something happens to it; guarded by the run
}

// hasPrograms reports whether the worker in that place can run programs. The
// worker that replaces another has its place.
func (c Config) hasPrograms(place int) bool {
	return c.LackEvery == 0 || place%c.LackEvery != c.LackEvery-1
}

// keptLogs is of how many workers the logs are kept.
const keptLogs = 400

// addVM starts a worker on a VM of its own.
func (r *chaos) addVM(programs bool) error {
	r.mu.Lock()
	r.started++
	v := &vm{name: vmName(r.started), programs: programs, busy: true}
	old := r.started - keptLogs
	r.mu.Unlock()

	var err error
	if v.door, err = openDoor(v.name, r.ConnectionString, r.stores.Names, r.tally, r.transport, r.over); err != nil {
		return err
	}
	r.mu.Lock()
	r.present = append(r.present, v)
	r.mu.Unlock()
	r.tally.joins(v.name, r.JobsAtOnce, programs)
	r.local.AddVM(imds.VM{Name: v.name, ScaleSet: "chaos"})
	if v.worker, err = r.fleet.Start(v.name); err != nil {
		v.door.close()
		return err
	}
	if old > 0 {
		_ = os.Remove(fmt.Sprintf("%s/%s.log", r.folder, vmName(old))) // it may be one that is kept in use
	}
	r.release(v)
	return nil
}

func vmName(n int) string { return fmt.Sprintf("chaos_%d", n) }

// storageFor is the connection string that leads through a VM's door.
func (r *chaos) storageFor(name string) string {
	if v := r.vm(name); v != nil {
		return v.door.connectionString
	}
	return "" // which is refused
}

// argsFor are the flags of one VM's worker.
func (r *chaos) argsFor(name string) []string {
	if v := r.vm(name); v != nil && v.programs {
		return []string{"--kinds-file=" + r.kindsFile}
	}
	return nil
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

// onEnd is told of a worker that ended without being asked to.
func (r *chaos) onEnd(worker *lab.VM, err error) {
	r.fault("worker %s ended by itself (%v), see %s", worker.Name, err, worker.LogFile)
}

// victim takes a VM that has work in its hands, so that nothing else happens to
// it until it is released; nil if there is none.
func (r *chaos) victim() *vm {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := r.random.Perm(len(r.present))
	for _, i := range order {
		if v := r.present[i]; !v.busy && r.tally.inHand(v.name) > 0 {
			v.busy = true
			return v
		}
	}
	return nil
}

// release says that nothing happens to a VM any more.
func (r *chaos) release(v *vm) {
	r.tally.recovers(v.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	v.busy = false
}

// remove takes a VM away whose worker has ended, and starts another.
func (r *chaos) remove(v *vm) {
	r.mu.Lock()
	for i, other := range r.present {
		if other == v {
			r.present = append(r.present[:i:i], r.present[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	r.local.Metadata.RemoveVM(v.name)
	v.door.close()
	if err := r.addVM(v.programs); err != nil {
		r.fault("no worker in the place of %s: %v", v.name, err)
	}
}
