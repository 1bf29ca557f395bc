package chaos

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/stage"
)

// vm is a VM of the run.
type vm struct {
	*stage.VM

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
	var args []string
	if programs {
		args = []string{"--kinds-file=" + r.kindsFile}
	}
	started, err := r.stage.Start(r.config.JobsAtOnce, programs, args...)
	if err != nil {
		return err
	}
	if old := r.stage.Started() - keptLogs; old > 0 {
		_ = os.Remove(filepath.Join(r.folder, lab.VMName(old)+".log")) // another process may have it open
	}
	r.recorder.IncidentEnds(started.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present = append(r.present, &vm{VM: started, programs: programs})
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
		if v := r.present[i]; !v.busy && r.recorder.Held(v.Name) > 0 {
			v.busy = true
			return v
		}
	}
	return nil
}

// release ends the incident of a VM.
func (r *chaos) release(v *vm) {
	r.recorder.IncidentEnds(v.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	v.busy = false
}

// remove removes a VM whose worker has ended, and starts a replacement.
func (r *chaos) remove(v *vm) {
	r.mu.Lock()
	r.present = slices.DeleteFunc(r.present, func(other *vm) bool { return other == v })
	r.mu.Unlock()
	r.stage.Remove(v.VM)
	if err := r.addVM(v.programs); err != nil {
		r.fault("cannot replace worker %s: %v", v.Name, err)
	}
}
