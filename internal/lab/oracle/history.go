package oracle

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Statuses of a record, as docs/FORMATS.md names them.
const (
	Open      = "open"
	Running   = "running"
	Done      = "done"
	Poison    = "poison"
	Cancelled = "cancelled"
)

// Final reports whether a status is an outcome.
func Final(status string) bool { return status == Done || status == Poison || status == Cancelled }

// Write is a write of a job's record that took effect.
type Write struct {
	VM                 string // of the worker that wrote it, as far as known
	Status, Token      string
	MessageID          string // of the message whose delivery wrote it
	State              string // hash of the state; empty without one
	Progress           int64  // of the state in the write; -1 without one
	Generation, Number int
	Failures           int    // in a row, as the record counts them
	Before, After      string // ETags; Before is empty for a create
	Unconditional      bool   // it would have replaced any record
	Wrong              bool   // it has a result, which is not the expected one
	Operator           bool   // it replays or purges a dead-lettered job, or cancels an unfinished one
	At                 time.Time
	Took               time.Duration // from its arrival at storage to At; 0 where that is unknown
}

// ReadWrite reads the fields of a write from a record's metadata. The caller adds
// what metadata does not hold.
func ReadWrite(metadata func(key string) string) Write {
	number := func(key string) int {
		n, _ := strconv.Atoi(metadata(key)) // a field of value 0 is left out
		return n
	}
	return Write{
		Status: metadata("status"), Token: metadata("token"), MessageID: metadata("messageid"), State: metadata("statehash"), Progress: -1,
		Generation: number("generation"), Number: number("write"), Failures: number("failures"),
	}
}

// Reopens reports whether the write is an operator's replay or purge of a dead-lettered
// job. No other write may replace an outcome.
func (w Write) Reopens(before string) bool {
	return w.Operator && before == Poison && (w.Status == Open || w.Status == Cancelled)
}

func (w Write) String() string {
	return fmt.Sprintf("%s %-9s by %s, token %.8s, generation %d, write %d, progress %d, %s -> %s",
		w.At.Format(clock), w.Status, w.VM, w.Token, w.Generation, w.Number, w.Progress, w.Before, w.After)
}

// clock formats times in reports.
const clock = "15:04:05.000"

// Message holds the fields of an envelope on the queue that identify its job.
type Message struct {
	V       int
	ID      string
	Payload json.RawMessage
}

// ReadMessage reads a message: base64 of a JSON object. It reports false if the
// message is no envelope of version 1.
func ReadMessage(text string) (m Message, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	return m, err == nil && json.Unmarshal(raw, &m) == nil && m.V == 1 && m.ID != ""
}

// Job is the history of one job.
type Job struct {
	// Put is when the job was put, and Ended when its record got an outcome;
	// zero while it has none.
	Put, Ended time.Time

	// Healthy says that the job's handler does not fail: it must be committed,
	// or dead-lettered because its workers were killed.
	Healthy bool

	// Restricted says that only some workers have the job's kind.
	Restricted bool

	// Messages are the ids of its messages. Writes are the writes of its record in any
	// order. Replacements are the times at which a worker had put another message of it,
	// as on the queue for jobs to do first, and Deletions those at which one was deleted.
	Messages                []string
	Writes                  []Write
	Replacements, Deletions []time.Time

	// Runs are the times in which a worker held a message of the job and worked
	// on it. Kills is how many VMs were killed that held one.
	Runs  []Span
	Kills int
}

// Story describes the job's history, a line for each event.
func (j *Job) Story() []string {
	lines := make([]string, 0, len(j.Writes)+len(j.Deletions)+len(j.Replacements))
	for _, w := range j.Writes {
		lines = append(lines, w.String())
	}
	for _, at := range j.Deletions {
		lines = append(lines, at.Format(clock)+" message deleted")
	}
	for _, at := range j.Replacements {
		lines = append(lines, at.Format(clock)+" another message put")
	}
	return lines
}

// History holds the events of all jobs of a run.
type History struct {
	Jobs map[string]*Job // by id

	jobOf map[string]string // by message id
}

// NewHistory returns a history without jobs.
func NewHistory() *History {
	return &History{Jobs: map[string]*Job{}, jobOf: map[string]string{}}
}

// AddMessage records that a message belongs to a job, known or not.
func (h *History) AddMessage(id, job string) {
	if _, known := h.jobOf[id]; known {
		return
	}
	h.jobOf[id] = job
	if j := h.Jobs[job]; j != nil {
		j.Messages = append(j.Messages, id)
	}
}

// AddReplacement records that a worker put another message of a job.
func (h *History) AddReplacement(id, job string, at time.Time) {
	h.AddMessage(id, job)
	if j := h.Jobs[job]; j != nil {
		j.Replacements = append(j.Replacements, at)
	}
}

// JobOf returns the job of a message; nil if it is unknown.
func (h *History) JobOf(message string) *Job { return h.Jobs[h.jobOf[message]] }

// AddWrite records a write. It reports false if the job is unknown.
func (h *History) AddWrite(job string, w Write) bool {
	j := h.Jobs[job]
	if j == nil {
		return false
	}
	j.Writes = append(j.Writes, w)
	if Final(w.Status) && j.Ended.IsZero() {
		j.Ended = w.At
	}
	return true
}

// AddDeletion records that a message was deleted.
func (h *History) AddDeletion(message string, at time.Time) {
	if j := h.JobOf(message); j != nil {
		j.Deletions = append(j.Deletions, at)
	}
}
