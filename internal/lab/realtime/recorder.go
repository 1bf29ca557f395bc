package realtime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// run is one run of a job on a VM.
type run struct {
	job, message   string
	vm             string
	generation     int // of the record
	claimed, works time.Time
	to             time.Time // zero while it is active
	end            replay.End
	saves          []time.Time
	savedLast      bool      // the release saved a state
	visible        time.Time // when the message is visible again
}

// claim names the owner of a record. A job that died before its first write has the same generation
// again, on another VM.
type claim struct {
	vm         string
	generation int
}

// vmTimes are the observed moments of a VM; zero for none.
type vmTimes struct{ ready, seen time.Time }

// recorder joins the storage emulator's calls and the workers' logs. It is safe for concurrent use.
type recorder struct {
	storage *storage.Server
	names   azure.Names
	fail    func(error) // ends the replay

	mu      sync.Mutex
	closed  bool // nothing more is recorded
	runs    []*run
	vms     map[string]vmTimes
	claims  map[string]time.Time // by message
	visible map[string]time.Time
	useful  map[string]map[claim]time.Duration // the ledger's, by job
	done    map[string]time.Time               // by job
	calls   int
	changed chan struct{} // closed and replaced with every job that is done
}

func newRecorder(s *storage.Server, names azure.Names, fail func(error)) *recorder {
	return &recorder{
		storage: s, names: names, fail: fail, vms: map[string]vmTimes{}, claims: map[string]time.Time{}, visible: map[string]time.Time{},
		useful: map[string]map[claim]time.Duration{}, done: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// onResult is the storage emulator's hook of that name.
func (r *recorder) onResult(result storage.Result) {
	now := time.Now()
	worked := result.Status >= 200 && result.Status < 300
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
	case result.Container == r.names.Records && result.Blob != "":
		r.calls++
		if worked {
			r.recordWritten(result, now)
		}
	case result.Container == r.names.Payloads && result.Blob != "":
		r.calls++
	case result.Queue == r.names.Queue:
		r.queueCalled(result, now)
	}
}

// queueCalled counts a call for messages of jobs, and records claims and releases. A poll without a
// message is no call for a job.
func (r *recorder) queueCalled(result storage.Result, now time.Time) {
	switch result.Operation {
	case storage.OpGetMessages:
		if len(result.MessageIDs) > 0 {
			r.calls++
		}
		for _, id := range result.MessageIDs {
			r.claims[id] = now
		}
	case storage.OpUpdateMessage:
		r.calls++
		if m, ok := r.storage.Message(r.names.Queue, result.MessageID); ok && m.Visible {
			r.visible[result.MessageID] = now
		}
	case storage.OpDeleteMessage:
		r.calls++
	}
}

// recordWritten reads the ledger of a record. A read changes nothing.
func (r *recorder) recordWritten(result storage.Result, now time.Time) {
	if result.Operation == storage.OpGetBlob {
		return
	}
	blob, _, found := r.storage.ReadBlob(result.Container, result.Blob)
	if !found {
		return
	}
	job := oracle.JobOfRecord(result.Blob)
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(blob.Metadata[key], 10, 64) // a field of value 0 is left out
		return n
	}
	if r.useful[job] == nil {
		r.useful[job] = map[claim]time.Duration{}
	}
	vm, _, _ := strings.Cut(blob.Metadata["owner"], "-") // of NAME-ID-INSTANCE; names of the lab's VMs have no dash
	r.useful[job][claim{vm, int(number("generation"))}] = time.Duration(number("useful")) * time.Millisecond
	if blob.Metadata["status"] == oracle.Done && r.done[job].IsZero() {
		r.done[job] = now
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// logLine holds the fields that are read of a line of a worker's log.
type logLine struct {
	Time       time.Time
	Msg        string
	JobID      string `json:"job_id"`
	MessageID  string `json:"message_id"`
	Generation int
	Reason     string
	Error      string
	To         string
	StateBytes int64 `json:"state_bytes"`
	LeftOut    bool  `json:"state_left_out"`
}

// onLine is the fleet's hook for the workers' logs.
func (r *recorder) onLine(vm string, raw []byte) {
	var line logLine
	if json.Unmarshal(raw, &line) != nil {
		return // not a log line, such as a panic; the log file keeps it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.logged(vm, line)
	}
}

func (r *recorder) logged(vm string, line logLine) {
	times := r.vms[vm]
	switch line.Msg {
	case "state changed":
		if line.To == "process" && times.ready.IsZero() {
			times.ready = line.Time
		}
	case "work stopped":
		if times.seen.IsZero() {
			times.seen = line.Time
		}
	case "job started":
		r.runs = append(r.runs, &run{job: line.JobID, message: line.MessageID, vm: vm, generation: line.Generation,
			claimed: r.claims[line.MessageID], works: line.Time})
	case "message moved to the poison queue", "job failed; it will be tried again":
		r.fail(fmt.Errorf("job %s failed on %s, and a replay is about jobs that do not: %s%s", line.JobID, vm, line.Reason, line.Error))
	}
	r.vms[vm] = times
	if active := r.active(vm, line.JobID); active != nil {
		r.loggedOf(active, line)
	}
}

// loggedOf records a line about an active run.
func (r *recorder) loggedOf(active *run, line logLine) {
	switch line.Msg {
	case "checkpoint saved":
		active.saves = append(active.saves, line.Time)
	case "job committed":
		active.to, active.end = line.Time, replay.Done
	case "job released":
		active.to, active.end, active.visible = line.Time, replay.Released, line.Time
		active.savedLast = line.StateBytes > 0 && !line.LeftOut
		if at := r.visible[active.message]; at.After(active.claimed) {
			active.visible = at
		}
	case "message left alone; another worker may have its job", "message deferred", "message deleted: its job is over already":
		active.to, active.end, active.visible = line.Time, replay.Died, line.Time // it was slow: others took it for dead
	}
}

// active returns the run of a job on a VM that is not over; nil if there is none.
func (r *recorder) active(vm, job string) *run {
	for _, known := range slices.Backward(r.runs) {
		if known.vm == vm && known.job == job && known.to.IsZero() {
			return known
		}
	}
	return nil
}

// gone records that a VM was killed, and its log is read.
func (r *recorder) gone(vm string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, active := range r.runs {
		if r.closed || active.vm != vm || !active.to.IsZero() {
			continue
		}
		active.to, active.end, active.visible = at, replay.Died, at
		if m, ok := r.storage.Message(r.names.Queue, active.message); ok {
			active.visible = m.NextVisible
		}
		if done := r.done[active.job]; !done.IsZero() && !done.Before(active.works) && done.Before(at) { // it died before it logged that
			active.to, active.end = done, replay.Done
		}
	}
}

// close ends the recording. Runs that are not over are cut at that moment.
func (r *recorder) close(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, active := range r.runs {
		if active.to.IsZero() {
			active.to = at
			if done := r.done[active.job]; !done.IsZero() && !done.Before(active.works) {
				active.to, active.end = done, replay.Done
			}
		}
	}
}

// progress returns the number of jobs that are done. changed is closed when there are more.
func (r *recorder) progress() (done int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.done), r.changed
}
