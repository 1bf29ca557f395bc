package lab

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// Statuses of a record, as docs/FORMATS.md names them. The ledger reads records
// and messages with its own eyes: code shared with the product would share its
// faults.
const (
	statusDone      = "done"
	statusPoison    = "poison"
	statusCancelled = "cancelled"
)

func final(status string) bool {
	return status == statusDone || status == statusPoison || status == statusCancelled
}

// OnCall is the storage emulator's hook of that name: it notes when a write of
// a record arrived.
func (l *Ledger) OnCall(c storage.Call) {
	if !l.writesRecord(c) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived[c.N] = time.Now()
}

// OnResult is the storage emulator's hook of that name. It runs after the effect
// and before the reply, so that nothing a client does next can come before it.
func (l *Ledger) OnResult(r storage.Result) {
	now := time.Now()
	effective := r.Status >= 200 && r.Status < 300
	switch {
	case l.writesRecord(r.Call):
		l.recordWritten(r, effective, now)
	case !effective || r.Queue != l.names.Queue:
	case r.Operation == storage.OpPutMessage:
		l.messagesPut(r.MessageIDs)
	case r.Operation == storage.OpGetMessages:
		for _, id := range r.MessageIDs {
			l.moved(id, handedOut, now)
		}
	case r.Operation == storage.OpUpdateMessage:
		if m, ok := l.message(r.MessageID); ok && m.Visible {
			l.moved(r.MessageID, released, now)
		}
	case r.Operation == storage.OpDeleteMessage:
		l.moved(r.MessageID, deleted, now)
	}
}

func (l *Ledger) writesRecord(c storage.Call) bool {
	if c.Container != l.names.Records || c.Blob == "" {
		return false
	}
	switch c.Operation {
	case storage.OpPutBlob, storage.OpSetBlobMetadata, storage.OpPutBlockList:
		return true
	}
	return false
}

// recordWritten reads the record that the call left. Another write may have
// followed already; then this one was not seen, and the report says so.
func (l *Ledger) recordWritten(r storage.Result, effective bool, now time.Time) {
	var blob storage.BlobState
	var body []byte
	seen := false
	if effective {
		blob, body, seen = l.storage.ReadBlob(r.Container, r.Blob)
		seen = seen && blob.ETag == r.ETag
	}
	l.add(func(f *facts) {
		began := l.arrived[r.N]
		delete(l.arrived, r.N)
		switch {
		case r.Status == http.StatusPreconditionFailed || r.Status == http.StatusConflict:
			f.refusals = append(f.refusals, refusal{job: jobOf(r.Blob), vm: f.writerOf(r.IfMatch), at: now})
		case !effective:
		case !seen:
			f.blind++
		default:
			f.writes = append(f.writes, readRecord(blob, body, r.Operation, began, now))
		}
	})
}

// writerOf returns the VM whose write left that ETag.
func (f *facts) writerOf(etag string) string {
	for _, w := range f.writes {
		if etag != "" && w.etag == etag {
			return w.vm
		}
	}
	return ""
}

// jobOf takes the job's id out of a record's name, <hhh>/<job id>.
func jobOf(blob string) string {
	_, job, _ := strings.Cut(blob, "/")
	return job
}

func readRecord(blob storage.BlobState, body []byte, operation string, began, ended time.Time) write {
	w := write{
		job: jobOf(blob.Name), status: blob.Metadata["status"], vm: vmOf(blob.Metadata["owner"]),
		token: blob.Metadata["token"], etag: blob.ETag, offset: -1, began: began, ended: ended,
	}
	var state struct{ Offset *int64 }
	stored := operation != storage.OpSetBlobMetadata && blob.Metadata["statehash"] != ""
	if stored && json.Unmarshal(body, &state) == nil && state.Offset != nil {
		w.offset = *state.Offset
	}
	return w
}

// vmOf takes the VM's name out of a worker's, NAME-<8 of the VM's id>-<instance>.
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

// messagesPut notes what jobs the messages are for.
func (l *Ledger) messagesPut(ids []string) {
	for _, id := range ids {
		m, _ := l.message(id)
		job, ok := readMessage(m.Text)
		l.add(func(f *facts) {
			switch {
			case ok:
				f.jobs[job.id] = job
				f.owners[job.id] = append(f.owners[job.id], id)
			case !slices.ContainsFunc(f.odd, func(o Odd) bool { return o.Text == m.Text }):
				f.foreign++
			}
		})
	}
}

// readMessage reads base64 of {"v":1,"id":…,"payload":{"blob":…}}.
func readMessage(text string) (jobFact, bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	var message struct {
		V       int
		ID      string
		Payload struct{ Blob string }
	}
	if err != nil || json.Unmarshal(raw, &message) != nil || message.V != 1 || message.ID == "" {
		return jobFact{}, false
	}
	return jobFact{id: message.ID, blob: message.Payload.Blob}, true
}

func (l *Ledger) moved(message string, kind moveKind, at time.Time) {
	l.add(func(f *facts) { f.moves = append(f.moves, move{message: message, kind: kind, at: at}) })
}

func (l *Ledger) message(id string) (storage.Message, bool) {
	for _, m := range l.storage.Messages(l.names.Queue) {
		if m.ID == id {
			return m, true
		}
	}
	return storage.Message{}, false
}
