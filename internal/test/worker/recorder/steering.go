package recorder

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// followDelay is how long a fault of one request may keep a worker from following the
// control document: a claim or a heartbeat that takes long, and the next of it.
const followDelay = time.Minute

// WorkerOnVM returns the name of the worker on a VM of a history, and vmOfWorker the
// VM.
func WorkerOnVM(vm string) string { return vm + workerSuffix }

// VMOfWorker returns the name of a worker's VM.
func VMOfWorker(worker string) string { return strings.TrimSuffix(worker, workerSuffix) }

// vmID is the id of all VMs. workerSuffix follows the VM's name in a worker's: the start of
// the id, and the instance.
const (
	idStart      = "11112222"
	VMID         = idStart + "-0000-0000-0000-000000000000"
	workerSuffix = "-" + idStart + "-0"
)

// checkControl follows the control document as operators write it.
func (rec *Recorder) checkControl(r storage.Result) {
	if r.Operation != storage.OpPutBlob || r.Status != http.StatusCreated {
		return
	}
	_, body, _ := rec.server.ReadBlob(r.Container, r.Blob)
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
	rec.addEntry(rec.Sender, "changes the control document")
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
		renamed[VMOfWorker(worker)] = mark
	}
	all["drain"], _ = json.Marshal(renamed) // cannot fail: it was decoded
	document, _ = json.Marshal(all)
	return document
}

// disobeyed records broken rules about what operators ask.
func (rec *Recorder) disobeyed(broken []oracle.Violation) {
	for _, b := range broken {
		rec.addViolation(rec.job(""), "%s", b.Text)
	}
}

// SteeredRequest checks a request that a worker sends. A request with a fault may keep it
// from learning of the operators' requests.
func (rec *Recorder) SteeredRequest(vm string, r *http.Request, faulty bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	now := time.Now()
	path := strings.Split(r.URL.Path, "/")
	claims := r.Method == http.MethodGet && path[len(path)-1] == "messages" && r.URL.Query().Get("peekonly") == ""
	if claims {
		rec.disobeyed(rec.steering.Claimed(vm, now))
	}
	follows := slices.ContainsFunc(path, func(name string) bool {
		return name == rec.names.Workers || name == rec.names.Control || name == rec.names.Records
	})
	if faulty && (claims || follows) {
		rec.steering.Blind(vm, now.Add(followDelay))
	}
}

// HandlerStarted and handlerEnded record the time of a handler on a VM.
func (rec *Recorder) HandlerStarted(vm, id string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.disobeyed(rec.steering.Started(vm, id, rec.job(id).lastPut, time.Now()))
}

// HandlerEnded records the end of a handler on a VM.
func (rec *Recorder) HandlerEnded(vm, id string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.disobeyed(rec.steering.Ended(vm, id, time.Now()))
}

// Stopped returns how many handlers had to end because of a cancel or a drain, and did.
func (rec *Recorder) Stopped() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.steering.Stopped
}

// StartedBesideItself reports a worker that started a handler which it was running.
func (rec *Recorder) StartedBesideItself(id, vm string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.addViolation(rec.job(id), "worker %s started the handler while it was running it", vm)
}

// Operator is the name under which an operator's requests reach storage.
const Operator = "operator"
