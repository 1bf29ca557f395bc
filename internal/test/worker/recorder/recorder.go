package recorder

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// Recorder records the storage calls of a test and checks them against the rules. The
// storage emulator calls it after the effect of every call, and it reads the stored data
// then. It uses nothing that a worker reports, except how often a handler
// failed.
//
// [oracle.Record] checks every write of a record at that moment: nothing replaces
// an outcome, a superseded token writes nothing, generation, progress and write
// number do not go back, and only failures of handlers are counted. The recorder
// adds rules about messages:
//
//   - no message is hidden for longer than the longest back-off, and in times without
//     faults none waits for longer than a pause between claims while a worker has a
//     free slot (if the test called checkIdle);
//   - a message is deleted only if its job has an outcome or another message
//     continues the job;
//   - a message that a worker puts does not expire.
//
// [oracle.Steering] adds those about what operators ask through the control document.
type Recorder struct {
	names        azure.Names
	queues       func() []string // the names of the queues of jobs
	began        time.Time
	LateRequests sync.WaitGroup // requests that arrive after their sender gave up

	turn    sync.Mutex // held while a request takes effect; guards the next two
	Sender  string
	refused *storage.Error

	mu         sync.Mutex
	server     *storage.Server
	Also       func(storage.Result)            // called after each call; nil for nothing
	MayAcquire func(vm, id, needs string) bool // whether a job with a state of these needs; nil for always
	jobs       map[string]*JobHistory
	jobOf      map[string]string // by message id; "" for a message that is no envelope
	order      map[string]int    // in which messages were put, by their ids
	idle       *idleCheck        // nil if the test did not call checkIdle
	cleared    bool              // the queues of jobs were cleared
	steering   oracle.Steering   // by VM
	violations []string
	entries    []string // of all jobs, each with its time and sender
	sentAt     time.Time
	sent       map[string]int // requests sent at sentAt, by sender and name
}

// New returns a recorder that watches nothing yet.
func New(names azure.Names, queues func() []string) *Recorder {
	return &Recorder{names: names, queues: queues, began: time.Now(), jobs: map[string]*JobHistory{}, jobOf: map[string]string{},
		order: map[string]int{}, sent: map[string]int{}}
}

// Perform has a request of that sender take effect, or has it refused. Requests do so one
// at a time over all senders, so that the recorder sees each effect on its own.
func (rec *Recorder) Perform(sender string, refused *storage.Error, do func() (*http.Response, error)) (*http.Response, error) {
	rec.turn.Lock() // no holder sleeps
	defer rec.turn.Unlock()
	rec.Sender, rec.refused = sender, refused
	return do()
}

// JobHistory holds the recorder's facts about one job.
type JobHistory struct {
	id       string
	meta     map[string]string  // of the current record; nil if there is none
	record   oracle.Record      // checks its writes
	reopened bool               // by an operator
	logs     map[string]logBlob // by the names of the blobs

	expected   *ExpectedOutputs        // the expected outputs; nil if none are judged
	outputs    map[string]listedOutput // that its record names, by path
	outputList string                  // the hash of their list
	lastPut    time.Time               // when its newest message was put

	claimedFrom map[string][]string // by VM: the queues from which it claimed messages of the job
	entries     []historyEntry
}

// historyEntry is one line of a job's history.
type historyEntry struct {
	at   time.Duration
	who  string
	what string
}

// Watch records the calls to a storage account. It does not record the calls of clients that
// were made before.
func (rec *Recorder) Watch(server *storage.Server) {
	rec.mu.Lock()
	rec.server = server
	rec.mu.Unlock()
	server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Refuse: rec.refused} })
	server.OnResult(func(r storage.Result) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.onResult(r)
		if rec.Also != nil {
			rec.Also(r)
		}
	})
}

// Check reports all broken rules as errors of the test.
func (rec *Recorder) Check(t *testing.T) {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, broken := range rec.violations {
		t.Error(broken)
	}
}

// OutcomesOf returns how often the job reached an outcome.
func (rec *Recorder) OutcomesOf(id string) int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.job(id).record.Outcomes
}

// HandlerFailed records that a handler failed of its own accord.
func (rec *Recorder) HandlerFailed(id, who string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.job(id).record.Failed++
	rec.add(rec.job(id), who, "handler fails")
}

// WasPut reports whether a message of the job was put.
func (rec *Recorder) WasPut(id string) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return !rec.job(id).lastPut.IsZero()
}

// HistoryOf returns the history of a job, one entry a line.
func (rec *Recorder) HistoryOf(id string) string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var b strings.Builder
	for _, e := range rec.job(id).entries {
		fmt.Fprintf(&b, "%10.3fs  %-8s %s\n", e.at.Seconds(), e.who, e.what)
	}
	return b.String()
}

// FailuresOf returns how often the job's handler failed of its own accord.
func (rec *Recorder) FailuresOf(id string) int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.job(id).record.Failed
}

// KeptAsPoison reports whether the poison queue has a message of that text, which
// belongs to no job.
func (rec *Recorder) KeptAsPoison(text string) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.isPoisoned(func(p queue.Poison) bool { return p.Body == text })
}

// IsDeadLettered reports whether a job has a poison message.
func (rec *Recorder) IsDeadLettered(id string) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.isDeadLetteredLocked(id)
}

// QueuesCleared records that the queues of jobs were cleared: from now on a job may
// have no message until an operator requeues it.
func (rec *Recorder) QueuesCleared() {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.cleared = true
	rec.addEntry("test", "clears the queues")
}

// AllEntries returns the entries so far, in an order that is the same for the same
// seed, and the longest time that a message waited while a slot was free.
func (rec *Recorder) AllEntries() (entries []string, worstWait time.Duration) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return slices.Sorted(slices.Values(rec.entries)), rec.idle.worst
}

// WasCleared reports whether the queues of jobs were cleared.
func (rec *Recorder) WasCleared() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.cleared
}

// addEntry adds an entry with the current time. Its text must be the same in each run
// of a seed.
func (rec *Recorder) addEntry(who, what string) {
	rec.entries = append(rec.entries, fmt.Sprintf("%13.9fs %s %s", time.Since(rec.began).Seconds(), who, what))
}

// RequestSent records a request that is being sent, and returns its name. Of requests
// that a worker sends at the same time with the same name, the others' names have a
// number: what happens to them must differ, for which one is which depends on
// scheduling.
func (rec *Recorder) RequestSent(who string, r *http.Request) string {
	name := rec.nameOf(r)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if now := time.Now(); !now.Equal(rec.sentAt) {
		rec.sentAt = now
		clear(rec.sent)
	}
	rec.sent[who+" "+name]++
	if n := rec.sent[who+" "+name]; n > 1 {
		name += " " + strconv.Itoa(n)
	}
	if !strings.Contains(name, rec.names.Workers) { // how many heartbeats are written depends on scheduling
		rec.addEntry(who, "sends "+name)
	}
	return name
}

// nameOf describes a request, with the same text in each run of a seed. A message is
// named by the order in which it was put, since its id is random.
func (rec *Recorder) nameOf(r *http.Request) string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	path, message := r.URL.Path, ""
	for key, values := range r.Header {
		if strings.EqualFold(key, "x-ms-meta-messageid") {
			message = values[0]
		}
	}
	if i := strings.LastIndex(path, "/messages/"); i >= 0 {
		path, message = path[:i], path[i+len("/messages/"):]
	}
	if i := strings.Index(path, "/"+rec.names.Outputs+"/"); i >= 0 {
		path = randomNames.ReplaceAllString(path, "/$1")
	}
	q := r.URL.Query()
	return strings.Join([]string{r.Method, path, strconv.Itoa(rec.order[message]), q.Get("comp"), q.Get("restype"),
		withoutHash(q.Get("blockid")), q.Get("numofmessages"), r.Header.Get("X-Ms-Range")}, " ")
}

// withoutHash returns the length and the type in the id of a block. Its hash has a random key.
func withoutHash(block string) string {
	const hash = 16
	id, err := base64.StdEncoding.DecodeString(block)
	if err != nil || len(id) < hash {
		return block
	}
	return fmt.Sprintf("%q", id[hash:])
}

// randomNames match the random parts in the name of an output or of their list: the token
// of the claim, and the hash of a list that has tokens.
var randomNames = regexp.MustCompile(`/(manifest|[0-9]+)-[0-9a-f]+`)

// job returns the history of a job. The caller holds mu, here and below.
func (rec *Recorder) job(id string) *JobHistory {
	j := rec.jobs[id]
	if j == nil {
		j = &JobHistory{id: id}
		rec.jobs[id] = j
	}
	return j
}

// add adds an entry to a job's history.
func (rec *Recorder) add(j *JobHistory, who, what string) {
	at := time.Since(rec.began)
	j.entries = append(j.entries, historyEntry{at: at, who: who, what: what})
	word, _, _ := strings.Cut(what, " ") // the rest may name random ids
	rec.addEntry(who, j.id+" "+word)
}

// addViolation records that the current call broke a rule.
func (rec *Recorder) addViolation(j *JobHistory, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	rec.add(j, rec.Sender, "BREAKS A RULE: "+what)
	rec.violations = append(rec.violations, fmt.Sprintf("job %s, %.3fs, %s: %s", j.id, time.Since(rec.began).Seconds(), rec.Sender, what))
}
