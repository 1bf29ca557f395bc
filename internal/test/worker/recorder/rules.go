package recorder

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
)

// onResult records and checks every call of the storage emulator after its effect.
func (rec *Recorder) onResult(r storage.Result) {
	switch {
	case rec.isRemoval(r):
		rec.checkRemoval(r)
	case r.Service == storage.BlobService && r.Container == rec.names.Records && r.Blob != "":
		rec.checkRecordCall(r)
	case r.Service == storage.QueueService && r.Operation != storage.OpGetQueueMetadata:
		rec.checkVisibility(r)
		rec.checkMessageCall(r)
	case r.Operation == storage.OpPutBlob && r.Container == rec.names.Payloads && strings.HasPrefix(r.Blob, joblog.Prefix) &&
		r.Status == http.StatusCreated:
		rec.checkLogWrite(r)
	case r.Service == storage.BlobService && r.Container == rec.names.Control:
		rec.checkControl(r)
	case rec.isPayloadDelete(r):
		rec.checkPayloadDelete(r)
	}
}

func (rec *Recorder) isPayloadDelete(r storage.Result) bool {
	return r.Operation == storage.OpDeleteBlob && r.Container == rec.names.Payloads && r.Status == http.StatusAccepted
}

// checkRecordCall checks a call for a record against the rules.
func (rec *Recorder) checkRecordCall(r storage.Result) {
	j := rec.job(JobOfBlob(r.Blob))
	written := r.Status == http.StatusCreated || r.Status == http.StatusOK
	if !written || r.Operation != storage.OpPutBlob && r.Operation != storage.OpPutBlockList && r.Operation != storage.OpSetBlobMetadata {
		if r.Status >= http.StatusBadRequest {
			rec.add(j, rec.Sender, fmt.Sprintf("%s: %d %s", r.Operation, r.Status, r.Code))
		}
		return
	}
	blob, body, _ := rec.server.ReadBlob(r.Container, r.Blob)
	was, now := j.meta, blob.Metadata
	progress := progressIn(now, body)
	rec.add(j, rec.Sender, fmt.Sprintf("%s: %s, claim %.8s, generation %s, write %s, progress %d, failures %s, interruptions %s, unclean "+
		"exits %s %s",
		r.Operation, now["status"], now["token"], now["generation"], now["write"], progress, now["failures"], now["interruptions"],
		now["silentends"], now["reason"]))
	j.meta = now
	w := oracle.ReadWrite(func(key string) string { return now[key] })
	w.VM, w.Unconditional = rec.Sender, r.IfMatch == "" && r.IfNoneMatch != "*"
	// The test requeues as an operator does, but replaces no outcome.
	w.Operator = rec.Sender == Operator || rec.Sender == "test" && !oracle.Final(j.record.Status())
	if w.State != "" {
		w.Progress = int64(progress)
	}
	rec.checkNamedOutputs(j, was, r, progress)
	rec.checkNeeds(j, was)
	j.reopened = j.reopened || w.Reopens(j.record.Status())
	if w.Status == oracle.Cancelled {
		rec.steering.Cancelled(j.id, time.Now())
	}
	for _, broken := range j.record.Add(w) {
		rec.addViolation(j, "%s", broken.Text)
	}
}

// logBlob is a blob of a job's log, as it was written last.
type logBlob struct {
	sender string
	lines  int // of its delivery
}

// checkLogWrite checks that one worker alone writes a blob of a log, that the blob ends with the section of its delivery, and
// that no write forgets a line.
func (rec *Recorder) checkLogWrite(r storage.Result) {
	id, generation, ok := joblog.Owner(r.Blob)
	j := rec.job(id)
	_, body, _ := rec.server.ReadBlob(r.Container, r.Blob)
	d := joblog.Parse(body)
	if !ok || len(d.Sections) == 0 || d.Sections[len(d.Sections)-1].Generation != generation {
		rec.addViolation(j, "the blob %s of its log has %d deliveries and does not end with its own", r.Blob, len(d.Sections))
		return
	}
	before, now := j.logs[r.Blob], logBlob{rec.Sender, d.Sections[len(d.Sections)-1].Count}
	rec.add(j, rec.Sender, fmt.Sprintf("PutBlob of its log of delivery %d: %d lines", generation, now.lines))
	if before.sender != "" && before.sender != now.sender {
		rec.addViolation(j, "the log of delivery %d, which %s wrote, was written by %s", generation, before.sender, now.sender)
	}
	if now.lines < before.lines {
		rec.addViolation(j, "a write of its log has %d lines of delivery %d, and %d were there", now.lines, generation, before.lines)
	}
	if j.logs == nil {
		j.logs = map[string]logBlob{}
	}
	j.logs[r.Blob] = now
}

// checkMessageCall checks a call for messages against the rules.
func (rec *Recorder) checkMessageCall(r storage.Result) {
	if r.Code == "MessageNotFound" {
		delete(rec.job(rec.jobOf[r.MessageID]).claimedFrom, rec.Sender)
	}
	switch {
	case r.Operation == storage.OpPutMessage && r.Status == http.StatusCreated:
		rec.checkPut(r)
	case r.Operation == storage.OpGetMessages:
		for _, id := range r.MessageIDs {
			j := rec.job(rec.jobOf[id])
			j.recordClaim(rec.Sender, r.Queue)
			rec.add(j, rec.Sender, "claims message "+short(id))
		}
	case r.Operation == storage.OpDeleteMessage && r.Status == http.StatusNoContent:
		rec.checkDelete(r)
	case r.MessageID != "":
		rec.add(rec.job(rec.jobOf[r.MessageID]), rec.Sender, fmt.Sprintf("%s %s: %d %s", r.Operation, short(r.MessageID), r.Status, r.Code))
	}
}

// checkPut records which job a new message belongs to, and checks that it does not
// expire.
func (rec *Recorder) checkPut(r storage.Result) {
	for _, m := range rec.server.Messages(r.Queue) {
		if m.ID != r.MessageIDs[0] {
			continue
		}
		id := ""
		if e, err := queue.Decode(m.Text); err == nil {
			id = e.ID
		} else if p, err := queue.DecodePoison(m.Text); err == nil {
			id = p.ID
		}
		rec.jobOf[m.ID], rec.order[m.ID] = id, len(rec.order)+1
		j := rec.job(id)
		j.lastPut = time.Now()
		rec.add(j, rec.Sender, fmt.Sprintf("puts message %s on %s", short(m.ID), r.Queue))
		rec.checkMovesOnce(j, r)
		if !m.Expires.IsZero() && rec.Sender != "test" {
			rec.addViolation(j, "a message was put that expires at %s", m.Expires)
		}
	}
}

// checkDelete checks that a message may be deleted.
func (rec *Recorder) checkDelete(r storage.Result) {
	id := rec.jobOf[r.MessageID]
	j := rec.job(id)
	rec.add(j, rec.Sender, "deletes message "+short(r.MessageID))
	status := checkpoint.Status(j.meta["status"])
	switch {
	case id == "" || j.meta == nil: // not an envelope, or its job has no record
		if !rec.isReplaced(r.MessageID, id) && !rec.isPoisoned(func(p queue.Poison) bool { return p.MessageID == r.MessageID }) {
			rec.addViolation(j, "a message was deleted that has no record, no successor and no poison message")
		}
	case status == checkpoint.Poison:
		if !rec.isDeadLetteredLocked(id) {
			rec.addViolation(j, "the message of a poison job was deleted, and there is no poison message")
		}
	case status.Final(), rec.isReplaced(r.MessageID, id), rec.cleared:
	case j.reopened && rec.isQueued(id): // any message continues a replayed job
	case j.meta["endedat"] != "" && rec.isDeadLetteredLocked(id): // a replay has begun and is not finished
	default:
		rec.addViolation(j, "a message was deleted while its job is %s, and no other carries it on", status)
	}
}

// isReplaced reports whether another message of the job says resume, and so continues the
// job. The id of a foreign message's job is the message's.
func (rec *Recorder) isReplaced(message, id string) bool {
	if id == "" {
		id = message
	}
	for _, queueName := range rec.queues() {
		for _, m := range rec.server.Messages(queueName) {
			if e, err := queue.Decode(m.Text); err == nil && e.Resume && e.ID == id && m.ID != message {
				return true
			}
		}
	}
	return false
}

// isQueued reports whether a job has any message on the queues of jobs.
func (rec *Recorder) isQueued(id string) bool {
	for _, queueName := range rec.queues() {
		for _, m := range rec.server.Messages(queueName) {
			if rec.jobOf[m.ID] == id {
				return true
			}
		}
	}
	return false
}

// isDeadLetteredLocked is isDeadLettered for callers that hold mu.
func (rec *Recorder) isDeadLetteredLocked(id string) bool {
	return rec.isPoisoned(func(p queue.Poison) bool { return p.ID == id })
}

func (rec *Recorder) isPoisoned(is func(queue.Poison) bool) bool {
	for _, m := range rec.server.Messages(rec.names.Poison) {
		if p, err := queue.DecodePoison(m.Text); err == nil && is(p) {
			return true
		}
	}
	return false
}

// checkPayloadDelete checks that a payload blob is deleted only after its job is done
// or cancelled.
func (rec *Recorder) checkPayloadDelete(r storage.Result) {
	id, _, _ := strings.Cut(r.Blob[len("hhh/"):], "/")
	j := rec.job(id)
	rec.add(j, rec.Sender, "deletes the payload")
	if s := checkpoint.Status(j.meta["status"]); s != checkpoint.Done && s != checkpoint.Cancelled {
		rec.addViolation(j, "the payload of a job was deleted that is %q", s)
	}
}

// progressIn returns the number at the start of a recorded state, 0 if there is no
// state. The states of all handlers in these tests begin with one.
func progressIn(meta map[string]string, body []byte) int {
	if meta["statehash"] == "" || len(body) < 4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(body))
}

// JobOfBlob returns the job whose record has that name.
func JobOfBlob(name string) string { return name[len("hhh/"):] }

// short returns the end of an id, enough to tell messages apart.
func short(id string) string { return id[max(0, len(id)-6):] }

// recordClaim records from which queue a worker claimed a message of the job.
func (j *JobHistory) recordClaim(sender, from string) {
	if j.claimedFrom == nil {
		j.claimedFrom = map[string][]string{}
	}
	if !slices.Contains(j.claimedFrom[sender], from) {
		j.claimedFrom[sender] = append(j.claimedFrom[sender], from)
	}
}

// checkMovesOnce checks a message that a worker put on the on-demand queue or the queue First: the
// worker must have had one of the job's messages from another queue, since messages stay there, and
// none goes from the on-demand queue to First. A message that is gone, as the worker was told, may be
// replaced: another worker may have ended the job, or an operator removed it.
func (rec *Recorder) checkMovesOnce(j *JobHistory, r storage.Result) {
	from := j.claimedFrom[rec.Sender]
	if r.Queue != rec.names.OnDemand && r.Queue != rec.names.First || rec.cleared || len(from) != 1 {
		return
	}
	if from[0] == r.Queue || from[0] == rec.names.OnDemand {
		rec.addViolation(j, "its message is on the queue %s already, and was put on %s", from[0], r.Queue)
	}
}
