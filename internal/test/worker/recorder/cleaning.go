package recorder

import (
	"net/http"
	"strings"

	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
)

// isRemoval reports whether a call removed the record or the log of a job.
func (rec *Recorder) isRemoval(r storage.Result) bool {
	return r.Operation == storage.OpDeleteBlob && r.Status == http.StatusAccepted &&
		(r.Container == rec.names.Records || r.Container == rec.names.Payloads && strings.HasPrefix(r.Blob, joblog.Prefix))
}

// checkRemoval checks that only an operator removes the record and the log of a job, and
// only of a job that is done or cancelled. From then on the id stands for a new job.
func (rec *Recorder) checkRemoval(r storage.Result) {
	if id, _, isLog := joblog.Owner(r.Blob); isLog {
		rec.add(rec.job(id), rec.Sender, "removes a blob of its log")
		return
	}
	id := JobOfBlob(r.Blob)
	j := rec.job(id)
	rec.add(j, rec.Sender, "removes "+r.Container)
	if status := j.record.Status(); rec.Sender != Operator || status != oracle.Done && status != oracle.Cancelled {
		rec.addViolation(j, "the record of a job was removed that is %q", status)
	}
	rec.jobs[id] = &JobHistory{id: id, record: oracle.Record{Healthy: j.record.Healthy, Failed: j.record.Failed}, logs: j.logs,
		expected: j.expected, lastPut: j.lastPut, entries: j.entries}
}
