package histories

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWorkerOnVM: a history's workers have the names that its operators use.
func TestWorkerOnVM(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm-1-2", job.Kinds{"echo": rig.Echo})
		time.Sleep(5 * time.Second)
		synctest.Wait() // the worker knows its name
		if p.Name() != recorder.WorkerOnVM("vm-1-2") || recorder.VMOfWorker(p.Name()) != "vm-1-2" {
			t.Errorf("worker = %q, want %q", p.Name(), recorder.WorkerOnVM("vm-1-2"))
		}
	})
}
