package worker

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/job"
)

// followDelay is how long a fault of one request may keep a worker from following the
// control document: a claim or a heartbeat that takes long, and the next of it.
const followDelay = time.Minute

// workerOnVM returns the name of the worker on a VM of a history, and vmOfWorker the
// VM.
func workerOnVM(vm string) string { return vm + workerSuffix }

func vmOfWorker(worker string) string { return strings.TrimSuffix(worker, workerSuffix) }

// workerSuffix follows the VM's name in a worker's: the start of the VM's id, and the
// instance.
var workerSuffix = "-" + spotVM("").VMID[:8] + "-0"

// checkControl follows the control document as operators write it.
func (rec *recorder) checkControl(r storage.Result) {
	if r.Operation != storage.OpPutBlob || r.Status != http.StatusCreated {
		return
	}
	_, body, _ := rec.in.ReadBlob(r.Container, r.Blob)
	now := time.Now()
	broken, err := rec.steering.Follow(byVM(body), now)
	if err != nil {
		broken = append(broken, oracle.Violation{Text: err.Error()})
	}
	rec.disobeyed(broken)
	if rec.idle != nil {
		for vm, s := range rec.idle.workers {
			if !rec.steering.Works(vm, now) {
				s.free.Set(false, now)
			}
		}
	}
	rec.addEntry(rec.sender, "changes the control document")
}

// byVM returns a control document with the drained workers named by their VMs.
func byVM(document []byte) []byte {
	var all map[string]json.RawMessage
	var drained, renamed map[string]json.RawMessage
	if json.Unmarshal(document, &all) != nil || json.Unmarshal(all["drain"], &drained) != nil {
		return document
	}
	renamed = map[string]json.RawMessage{}
	for worker, mark := range drained {
		renamed[vmOfWorker(worker)] = mark
	}
	all["drain"], _ = json.Marshal(renamed) // cannot fail: it was decoded
	document, _ = json.Marshal(all)
	return document
}

// disobeyed records broken rules about what operators ask.
func (rec *recorder) disobeyed(broken []oracle.Violation) {
	for _, b := range broken {
		rec.addViolation(rec.job(""), "%s", b.Text)
	}
}

// steeredRequest checks a request that a worker sends. One with a fault may keep it
// from learning what is asked.
func (rec *recorder) steeredRequest(vm string, r *http.Request, f requestFault) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	now := time.Now()
	path := strings.Split(r.URL.Path, "/")
	claims := r.Method == http.MethodGet && path[len(path)-1] == "messages" && r.URL.Query().Get("peekonly") == ""
	if claims {
		rec.disobeyed(rec.steering.Claimed(vm, now))
	}
	follows := slices.ContainsFunc(path, func(name string) bool {
		return name == rec.b.names.Workers || name == rec.b.names.Control || name == rec.b.names.Records
	})
	if f.isFault() && (claims || follows) {
		rec.steering.Blind(vm, now.Add(followDelay))
	}
}

// isFault reports whether a request is delayed for long, lost or refused.
func (f requestFault) isFault() bool {
	return f.lost || f.replyLost || f.arrivesAfter > 0 || f.refused != nil || max(f.before, f.after) >= time.Second
}

// handlerStarted and handlerEnded record the time of a handler on a VM.
func (rec *recorder) handlerStarted(vm, id string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.disobeyed(rec.steering.Started(vm, id, rec.job(id).lastPut, time.Now()))
}

func (rec *recorder) handlerEnded(vm, id string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.disobeyed(rec.steering.Ended(vm, id, time.Now()))
}

// stopped returns how many handlers had to end because of a cancel or a drain, and did.
func (rec *recorder) stopped() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.steering.Stopped
}

// TestWorkerOnVM: the names of a history's workers are those that its operators use.
func TestWorkerOnVM(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		p := b.start("vm-1-2", job.Kinds{"echo": echo})
		time.Sleep(5 * time.Second)
		synctest.Wait() // the worker knows its name
		if p.name != workerOnVM("vm-1-2") || vmOfWorker(p.name) != "vm-1-2" {
			t.Errorf("worker = %q, want %q", p.name, workerOnVM("vm-1-2"))
		}
	})
}
