package worker

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/queue"
)

// ledger records and judges what happens in a history. The storage emulator calls
// it after the effect of every call, and it reads what is stored then. It uses
// nothing that a worker says, except how often a handler failed.
//
// [oracle.Record] judges every write of a record, at that moment: nothing replaces
// an outcome, a superseded token writes nothing, generation, progress and write
// number do not go back, and only failures of handlers are counted. The ledger
// adds rules about messages:
//
//   - none is hidden for longer than the longest back-off, and in calm times none
//     waits for longer than a pause between claims while a worker has a free slot
//     (where the test asks for that, see watchIdle);
//   - one is deleted only if its job has an outcome, or another message continues
//     the job; and no message that a worker puts expires.
type ledger struct {
	b          *testbed
	began      time.Time
	stragglers sync.WaitGroup // requests that are still to arrive

	turn    sync.Mutex // held while a request takes effect; guards the next two
	sender  string
	refused *storage.Error

	mu      sync.Mutex
	jobs    map[string]*account
	jobOf   map[string]string // by message id; "" for a message that is no envelope
	order   map[string]int    // in which messages were put, by their ids
	idle    *idle             // nil where nobody judges that
	cleared bool              // somebody cleared the queues of jobs
	broken  []string
	told    []string // all that happened so far: when, by whom, to which job
}

// account is what the ledger knows of one job.
type account struct {
	id       string
	meta     map[string]string // of the record as it stands; nil while there is none
	record   oracle.Record     // judges its writes
	reopened bool              // by an operator
	story    []entry
}

// entry is a line of a job's story.
type entry struct {
	at   time.Duration
	who  string
	what string
}

// observe gives the bench a ledger. Clients that were made before are not its own.
func (b *testbed) observe() *ledger {
	l := &ledger{b: b, began: time.Now(), jobs: map[string]*account{}, jobOf: map[string]string{}, order: map[string]int{}}
	b.ledger = l
	b.stores = b.connect(b.transport("test"))
	b.server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Refuse: l.refused} })
	b.server.OnResult(l.note)
	b.t.Cleanup(l.stragglers.Wait)
	return l
}

// check reports what broke a rule, with the stories of the jobs concerned.
func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, broken := range l.broken {
		t.Error(broken)
	}
}

// outcomesOf returns how often the job reached an outcome.
func (l *ledger) outcomesOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.job(id).record.Outcomes
}

// handlerFailed notes that a handler failed of its own accord.
func (l *ledger) handlerFailed(id, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.job(id).record.Failed++
	l.tell(l.job(id), who, "handler fails")
}

// storyOf returns what happened to a job.
func (l *ledger) storyOf(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, e := range l.job(id).story {
		fmt.Fprintf(&b, "%10.3fs  %-8s %s\n", e.at.Seconds(), e.who, e.what)
	}
	return b.String()
}

// failuresOf returns how often the job's handler failed of its own accord.
func (l *ledger) failuresOf(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.job(id).record.Failed
}

// keptAsPoison reports whether a message that is no one's job is kept.
func (l *ledger) keptAsPoison(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isPoisoned(func(p queue.Poison) bool { return p.Body == text })
}

// isGivenUp reports whether a job has a poison message.
func (l *ledger) isGivenUp(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isGivenUpNow(id)
}

// clear notes that the queues of jobs were cleared: from now on a job may be
// without a message until an operator requeues it.
func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleared = true
	l.hear("test", "clears the queues")
}

// seen returns all that happened so far, in an order that chance has no part in,
// and the longest wait beside a free slot.
func (l *ledger) seen() (told []string, worstWait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.told)), l.idle.worst
}

// wasCleared reports whether somebody cleared the queues of jobs.
func (l *ledger) wasCleared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cleared
}

// hear notes that something happened just now, in words that chance has no part in.
func (l *ledger) hear(who, what string) {
	l.told = append(l.told, fmt.Sprintf("%13.9fs %s %s", time.Since(l.began).Seconds(), who, what))
}

// sent notes a request that is on its way, and returns what it asks for.
func (l *ledger) sent(who string, r *http.Request) string {
	name := l.nameOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(name, l.b.names.Workers) { // how many presences are written is a matter of scheduling, and of no matter
		l.hear(who, "sends "+name)
	}
	return name
}

// nameOf says what a request asks for, in words that do not depend on chance: a
// message's id does, the order in which messages were put does not.
func (l *ledger) nameOf(r *http.Request) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	path, message := r.URL.Path, ""
	for key, values := range r.Header {
		if strings.EqualFold(key, "x-ms-meta-messageid") {
			message = values[0]
		}
	}
	if i := strings.LastIndex(path, "/messages/"); i >= 0 {
		path, message = path[:i], path[i+len("/messages/"):]
	}
	q := r.URL.Query()
	return strings.Join([]string{r.Method, path, strconv.Itoa(l.order[message]), q.Get("comp"), q.Get("restype"), q.Get("blockid"), r.Header.Get("X-Ms-Range")}, " ")
}

// job returns the account of a job. The caller holds mu, here and below.
func (l *ledger) job(id string) *account {
	a := l.jobs[id]
	if a == nil {
		a = &account{id: id}
		l.jobs[id] = a
	}
	return a
}

func (l *ledger) tell(a *account, who, what string) {
	at := time.Since(l.began)
	a.story = append(a.story, entry{at: at, who: who, what: what})
	word, _, _ := strings.Cut(what, " ") // the rest may name what chance made
	l.hear(who, a.id+" "+word)
}

func (l *ledger) breaks(a *account, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	l.tell(a, l.sender, "BREAKS A RULE: "+what)
	l.broken = append(l.broken, fmt.Sprintf("job %s, %.3fs, %s: %s", a.id, time.Since(l.began).Seconds(), l.sender, what))
}
