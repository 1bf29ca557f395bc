package worker

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
)

// note is told of every call once its effect took place.
func (l *ledger) note(r storage.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.Service == storage.BlobService && r.Container == l.b.names.Records && r.Blob != "":
		l.noteRecord(r)
	case r.Service == storage.QueueService && r.Operation != storage.OpGetQueueMetadata:
		l.noteVisibility(r)
		l.noteMessage(r)
	case r.Operation == storage.OpDeleteBlob && r.Container == l.b.names.Payloads && r.Status == http.StatusAccepted:
		l.payloadGone(r)
	}
}

// noteRecord holds a write of a record to the rules.
func (l *ledger) noteRecord(r storage.Result) {
	a := l.job(jobOfBlob(r.Blob))
	written := r.Status == http.StatusCreated || r.Status == http.StatusOK
	if !written || r.Operation != storage.OpPutBlob && r.Operation != storage.OpPutBlockList && r.Operation != storage.OpSetBlobMetadata {
		if r.Status >= http.StatusBadRequest {
			l.tell(a, l.sender, fmt.Sprintf("%s: %d %s", r.Operation, r.Status, r.Code))
		}
		return
	}
	blob, body, _ := l.b.server.ReadBlob(r.Container, r.Blob)
	now := blob.Metadata
	progress := progressIn(now, body)
	l.tell(a, l.sender, fmt.Sprintf("%s: %s, claim %.8s, generation %s, write %s, progress %d, failures %s, interruptions %s, silent ends %s %s",
		r.Operation, now["status"], now["token"], now["generation"], now["write"], progress, now["failures"], now["interruptions"], now["silentends"], now["reason"]))
	a.meta = now
	w := oracle.ReadWrite(func(key string) string { return now[key] })
	w.VM, w.Unconditional = l.sender, r.IfMatch == "" && r.IfNoneMatch != "*"
	// The test requeues as an operator does, but replaces no outcome.
	w.Operator = l.sender == operator || l.sender == "test" && !oracle.Final(a.record.Status())
	if w.State != "" {
		w.Progress = int64(progress)
	}
	a.reopened = a.reopened || w.Reopens(a.record.Status())
	for _, broken := range a.record.Add(w) {
		l.breaks(a, "%s", broken.Text)
	}
}

// noteMessage holds what happens to messages to the rules.
func (l *ledger) noteMessage(r storage.Result) {
	switch {
	case r.Operation == storage.OpPutMessage && r.Status == http.StatusCreated:
		l.messagePut(r)
	case r.Operation == storage.OpGetMessages:
		for _, id := range r.MessageIDs {
			l.tell(l.job(l.jobOf[id]), l.sender, "claims message "+short(id))
		}
	case r.Operation == storage.OpDeleteMessage && r.Status == http.StatusNoContent:
		l.messageGone(r)
	case r.MessageID != "":
		l.tell(l.job(l.jobOf[r.MessageID]), l.sender, fmt.Sprintf("%s %s: %d %s", r.Operation, short(r.MessageID), r.Status, r.Code))
	}
}

func (l *ledger) messagePut(r storage.Result) {
	for _, m := range l.b.server.Messages(r.Queue) {
		if m.ID != r.MessageIDs[0] {
			continue
		}
		id := ""
		if e, err := queue.Decode(m.Text); err == nil {
			id = e.ID
		} else if p, err := queue.DecodePoison(m.Text); err == nil {
			id = p.ID
		}
		l.jobOf[m.ID], l.order[m.ID] = id, len(l.order)+1
		a := l.job(id)
		l.tell(a, l.sender, fmt.Sprintf("puts message %s on %s", short(m.ID), r.Queue))
		if !m.Expires.IsZero() && l.sender != "test" {
			l.breaks(a, "a message was put that expires at %s", m.Expires)
		}
	}
}

// messageGone holds the end of a message to the rules.
func (l *ledger) messageGone(r storage.Result) {
	id := l.jobOf[r.MessageID]
	a := l.job(id)
	l.tell(a, l.sender, "deletes message "+short(r.MessageID))
	status := checkpoint.Status(a.meta["status"])
	switch {
	case id == "" || a.meta == nil: // not an envelope, or one that no record stands for
		if !l.isReplaced(r.MessageID, id) && !l.isPoisoned(func(p queue.Poison) bool { return p.MessageID == r.MessageID }) {
			l.breaks(a, "a message was deleted that nothing stands for")
		}
	case status == checkpoint.Poison:
		if !l.isGivenUpNow(id) {
			l.breaks(a, "the message of a poison job was deleted, and there is no poison message")
		}
	case status.Final(), l.isReplaced(r.MessageID, id), l.cleared:
	case a.reopened && l.isQueued(id): // any message of a replayed job carries it on
	case a.meta["endedat"] != "" && l.isGivenUpNow(id): // a replay was begun, and will be ended
	default:
		l.breaks(a, "a message was deleted while its job is %s, and no other carries it on", status)
	}
}

// isReplaced reports whether another message of the job says resume, so that it
// carries the job on. The job of a foreign message has that message's id.
func (l *ledger) isReplaced(message, id string) bool {
	if id == "" {
		id = message
	}
	for _, queueName := range []string{l.b.names.Queue, l.b.names.OnDemand} {
		for _, m := range l.b.server.Messages(queueName) {
			if e, err := queue.Decode(m.Text); err == nil && e.Resume && e.ID == id && m.ID != message {
				return true
			}
		}
	}
	return false
}

// isQueued reports whether a job has any message on the queues of jobs.
func (l *ledger) isQueued(id string) bool {
	for _, queueName := range []string{l.b.names.Queue, l.b.names.OnDemand} {
		for _, m := range l.b.server.Messages(queueName) {
			if l.jobOf[m.ID] == id {
				return true
			}
		}
	}
	return false
}

// isGivenUpNow reports whether a job has a poison message.
func (l *ledger) isGivenUpNow(id string) bool {
	return l.isPoisoned(func(p queue.Poison) bool { return p.ID == id })
}

func (l *ledger) isPoisoned(is func(queue.Poison) bool) bool {
	for _, m := range l.b.server.Messages(l.b.names.Poison) {
		if p, err := queue.DecodePoison(m.Text); err == nil && is(p) {
			return true
		}
	}
	return false
}

func (l *ledger) payloadGone(r storage.Result) {
	id, _, _ := strings.Cut(r.Blob[len("hhh/"):], "/")
	a := l.job(id)
	l.tell(a, l.sender, "deletes the payload")
	if s := checkpoint.Status(a.meta["status"]); s != checkpoint.Done && s != checkpoint.Cancelled {
		l.breaks(a, "the payload of a job was deleted that is %q", s)
	}
}

// progressIn returns what a recorded state says, 0 if there is none: the states
// of all handlers here begin with a number.
func progressIn(meta map[string]string, body []byte) int {
	if meta["statehash"] == "" || len(body) < 4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(body))
}

// jobOfBlob returns the job whose record has that name.
func jobOfBlob(name string) string { return name[len("hhh/"):] }

// short is enough of an id to tell messages apart.
func short(id string) string { return id[max(0, len(id)-6):] }
