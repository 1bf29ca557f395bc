package recorder

import (
	"net/url"
	"strings"
)

// checkNeeds checks that a worker acquires a record only if the worker meets the needs of its
// state. before is the metadata of the record before this write.
func (rec *Recorder) checkNeeds(j *JobHistory, before map[string]string) {
	hash, escaped, has := strings.Cut(before["stateneeds"], ",")
	if rec.MayAcquire == nil || !has || !strings.HasPrefix(before["statehash"], hash) || before["token"] == j.meta["token"] {
		return
	}
	if needs, err := url.PathUnescape(escaped); err != nil || !rec.MayAcquire(rec.Sender, j.id, needs) {
		rec.addViolation(j, "its record was acquired by a worker that does not meet the needs of its state: %s", needs)
	}
}

// ContinuedElsewhere records that a handler on a machine continued from a state of another
// machine.
func (rec *Recorder) ContinuedElsewhere(id, machine string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.addViolation(rec.job(id), "a handler on machine %s continued from a state of another machine", machine)
}
