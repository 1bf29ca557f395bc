package demo

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// recorder records the events of jobs: the storage emulator's changes of records and
// messages, and the workers' log lines about starting, hashing, stopping and releasing.
// It is safe for concurrent use.
type recorder struct {
	storage *storage.Server
	names   azure.Names

	mu      sync.Mutex
	history *history
	arrived map[int64]time.Time // record writes in flight, by call number
	changed chan struct{}       // closed and replaced whenever the history grows
}

// newRecorder returns a recorder of the queues and containers of those names. Its
// onCall and onResult must be installed as the emulator's hooks.
func newRecorder(s *storage.Server, names azure.Names) *recorder {
	return &recorder{
		storage: s, names: names, history: newHistory(),
		arrived: map[int64]time.Time{}, changed: make(chan struct{}),
	}
}

// expect sets the files whose digests the jobs' results must be.
func (r *recorder) expect(files []lab.File) {
	r.add(func(h *history) {
		for _, file := range files {
			h.files[file.Blob] = file
		}
	})
}

// expectBad sets the messages that must end in the poison queue. It is called
// before they are put.
func (r *recorder) expectBad(messages []badMessage) {
	r.add(func(h *history) { h.bad = messages })
}

// fate records the script's action on a VM.
func (r *recorder) fate(vm string, change func(*fate)) {
	r.add(func(h *history) {
		f := h.fates[vm]
		change(&f)
		h.fates[vm] = f
	})
}

func (r *recorder) add(event func(*history)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	event(r.history)
	close(r.changed)
	r.changed = make(chan struct{})
}

// look calls see with the history, which it must not keep. changed is closed when
// the history has grown.
func (r *recorder) look(see func(*history)) (changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	see(r.history)
	return r.changed
}

// onCall is the storage emulator's hook of that name: it notes when the write of
// a record arrives.
func (r *recorder) onCall(c storage.Call) {
	if !r.isRecordWrite(c) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[c.N] = time.Now()
}

// onResult is the storage emulator's hook of that name. The emulator calls it
// after the effect and before the reply, so the client cannot do anything next
// that is recorded first.
func (r *recorder) onResult(result storage.Result) {
	now := time.Now()
	effective := result.Status >= 200 && result.Status < 300
	switch {
	case r.isRecordWrite(result.Call):
		r.recordWritten(result, effective, now)
	case !effective || result.Queue != r.names.Queue:
	case result.Operation == storage.OpPutMessage:
		r.messagesPut(result.MessageIDs, now)
	case result.Operation == storage.OpGetMessages:
		for _, id := range result.MessageIDs {
			r.moved(id, claimed, now)
		}
	case result.Operation == storage.OpUpdateMessage:
		if m, ok := r.storage.Message(r.names.Queue, result.MessageID); ok && m.Visible {
			r.moved(result.MessageID, released, now)
		}
	case result.Operation == storage.OpDeleteMessage:
		r.moved(result.MessageID, deleted, now)
	}
}

func (r *recorder) isRecordWrite(c storage.Call) bool {
	if c.Container != r.names.Records || c.Blob == "" {
		return false
	}
	return slices.Contains([]string{storage.OpPutBlob, storage.OpSetBlobMetadata, storage.OpPutBlockList}, c.Operation)
}

// recordWritten reads the record that a call left. If another write has followed
// already, this one was not seen, which the report counts as broken.
func (r *recorder) recordWritten(result storage.Result, effective bool, now time.Time) {
	var blob storage.BlobState
	var body []byte
	seen := false
	if effective {
		blob, body, seen = r.storage.ReadBlob(result.Container, result.Blob)
		seen = seen && blob.ETag == result.ETag
	}
	job := oracle.JobOfRecord(result.Blob)
	r.add(func(h *history) {
		arrived := r.arrived[result.N]
		delete(r.arrived, result.N)
		switch {
		case result.Status == http.StatusPreconditionFailed || result.Status == http.StatusConflict:
			h.refusals = append(h.refusals, refusal{job: job, vm: h.writerOf(job, result.IfMatch), at: now})
		case !effective:
		case !seen:
			h.unseen++
		default:
			w := readRecord(blob, body, result)
			w.At, w.Took = now, now.Sub(arrived)
			w.Wrong = w.Status == oracle.Done && !isDigest(body, h.files[h.blobs[job]])
			if !h.oracle.AddWrite(job, w) {
				h.unseen++
			}
		}
	})
}

func readRecord(blob storage.BlobState, body []byte, result storage.Result) oracle.Write {
	w := oracle.ReadWrite(func(key string) string { return blob.Metadata[key] })
	w.VM = vmOf(blob.Metadata["owner"])
	w.Before, w.After, w.Unconditional = result.IfMatch, blob.ETag, result.IfMatch == "" && result.IfNoneMatch != "*"
	var state struct{ Offset *int64 }
	stored := result.Operation != storage.OpSetBlobMetadata && w.State != ""
	if stored && json.Unmarshal(body, &state) == nil && state.Offset != nil {
		w.Progress = *state.Offset
	}
	return w
}

// vmOf returns the VM's name in a worker's, NAME-<8 of the VM's id>-<instance>.
func vmOf(owner string) string {
	if plain, err := url.PathUnescape(owner); err == nil {
		owner = plain
	}
	for range 2 {
		if i := strings.LastIndexByte(owner, '-'); i >= 0 {
			owner = owner[:i]
		}
	}
	return owner
}

// messagesPut records the jobs of new messages.
func (r *recorder) messagesPut(ids []string, now time.Time) {
	for _, id := range ids {
		stored, _ := r.storage.Message(r.names.Queue, id)
		m, ok := oracle.ReadMessage(stored.Text)
		var payload struct{ Blob string }
		if ok && len(m.Payload) > 0 {
			ok = json.Unmarshal(m.Payload, &payload) == nil
		}
		r.add(func(h *history) {
			switch {
			case ok:
				h.addJob(m.ID, payload.Blob, now)
				h.oracle.AddMessage(id, m.ID)
			case !slices.ContainsFunc(h.bad, func(b badMessage) bool { return b.text == stored.Text }):
				h.foreign++
			}
		})
	}
}

func (r *recorder) moved(message string, kind moveKind, at time.Time) {
	r.add(func(h *history) {
		h.moves = append(h.moves, move{message: message, kind: kind, at: at})
		if kind == deleted {
			h.oracle.AddDeletion(message, at)
		}
	})
}

// logLine holds the fields that the recorder reads of a line of a worker's log.
type logLine struct {
	Time        time.Time
	Msg         string
	JobID       string  `json:"job_id"`
	MessageID   string  `json:"message_id"`
	Offset      int64   `json:"offset"`
	Bytes       int64   `json:"bytes"`
	ResumedAt   float64 `json:"resumed_at"`
	SinceNotice string  `json:"since_notice"`
	Reason      string  `json:"reason"`
}

// endKinds are the log messages that say how a delivery ended without a commit.
var endKinds = map[string]endKind{
	"message deferred":                                    deferred,
	"message deleted: its job is over already":            superfluous,
	"message left alone; another worker may have its job": dropped,
	"message moved to the poison queue":                   poisoned,
}

// onLine is the fleet's hook for the workers' logs. It ignores lines that the
// history has no use for.
func (r *recorder) onLine(vm string, raw []byte) {
	var line logLine
	if json.Unmarshal(raw, &line) != nil {
		return // not a log line, such as a panic; the log file keeps it
	}
	switch line.Msg {
	case "job started":
		r.add(func(h *history) {
			h.starts = append(h.starts, start{
				job: line.JobID, message: line.MessageID, vm: vm, fraction: line.ResumedAt, at: line.Time,
			})
		})
	case "range hashed":
		r.add(func(h *history) {
			h.ranges = append(h.ranges, hashedRange{job: line.JobID, vm: vm, offset: line.Offset, bytes: line.Bytes, at: line.Time})
		})
	case "work stopped":
		r.drained(vm, func(d *drain) { d.stopped = line.Time })
	case "drained":
		r.drained(vm, func(d *drain) { d.ended, d.sinceNotice = line.Time, line.SinceNotice })
	}
	if kind := endKinds[line.Msg]; kind != 0 {
		r.add(func(h *history) {
			h.ends = append(h.ends, deliveryEnd{
				job: line.JobID, message: line.MessageID, vm: vm, kind: kind, reason: line.Reason, at: line.Time,
			})
		})
	}
}

func (r *recorder) drained(vm string, change func(*drain)) {
	r.add(func(h *history) {
		d := h.drains[vm]
		change(&d)
		h.drains[vm] = d
	})
}
