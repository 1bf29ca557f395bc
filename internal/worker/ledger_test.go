package worker

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// ledger is the oracle of the proofs. It stands outside the system: the storage
// emulator tells it of every call once its effect took place, and it looks at
// what lies there then. It believes no worker. From the jobs it takes only what
// storage cannot know: how often a handler failed of its own accord.
//
// It holds every write to these rules, at the moment of the write:
//
//   - nothing is written over an outcome;
//   - a claim that was superseded writes nothing any more;
//   - neither generation nor progress nor a claim's write number goes back;
//   - a failure is counted only where a handler failed;
//   - a message goes only when its job has an outcome, or another message that
//     carries it on; and every message that a worker puts never expires.
type ledger struct {
	b          *bench
	began      time.Time
	stragglers sync.WaitGroup // requests that are still to arrive

	turn    sync.Mutex // held while a request takes effect; guards the next two
	sender  string
	refused *storage.Error

	mu     sync.Mutex
	jobs   map[string]*account
	jobOf  map[string]string // by message id; "" for a message that is no envelope
	order  map[string]int    // in which messages were put, by their ids
	broken []string
	told   []string // all that happened so far: when, by whom, to which job
}

// account is what the ledger knows of one job.
type account struct {
	id       string
	meta     map[string]string // of the record as it stands; nil while there is none
	lost     map[string]bool   // tokens whose claim is over
	reached  int               // the furthest progress recorded
	counted  int               // failures, as recorded
	failed   int               // failures, as the handlers know
	outcomes int
	story    []entry
}

// entry is a line of a job's story.
type entry struct {
	at   time.Duration
	who  string
	what string
}

// observe gives the bench a ledger. Clients that were made before are not its own.
func (b *bench) observe() *ledger {
	l := &ledger{b: b, began: time.Now(), jobs: map[string]*account{}, jobOf: map[string]string{}, order: map[string]int{}}
	b.ledger = l
	b.stores = b.connect(b.door("test"))
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
	return l.job(id).outcomes
}

// handlerFailed notes that a handler failed of its own accord.
func (l *ledger) handlerFailed(id, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.job(id).failed++
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
	return l.job(id).failed
}

// keptAsPoison reports whether a message that is nobody's job is kept.
func (l *ledger) keptAsPoison(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isPoisoned(func(p queue.Poison) bool { return p.Body == text })
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
		a = &account{id: id, lost: map[string]bool{}}
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

// note is told of every call once its effect took place.
func (l *ledger) note(r storage.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.Service == storage.BlobService && r.Container == l.b.names.Records && r.Blob != "":
		l.noteRecord(r)
	case r.Service == storage.QueueService && r.Operation != storage.OpGetQueueMetadata:
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
	was, now := a.meta, blob.Metadata
	progress := progressIn(now, body)
	l.tell(a, l.sender, fmt.Sprintf("%s: %s, claim %.8s, generation %s, write %s, progress %d, failures %s, interruptions %s, silent ends %s %s",
		r.Operation, now["status"], now["token"], now["generation"], now["write"], progress, now["failures"], now["interruptions"], now["silentends"], now["reason"]))
	a.meta = now
	l.judge(a, was, now)
	if progress < a.reached && now["statehash"] != "" {
		l.breaks(a, "progress went back from %d to %d", a.reached, progress)
	}
	a.reached = max(a.reached, progress)
}

// judge compares a record with the one that it replaced.
func (l *ledger) judge(a *account, was, now map[string]string) {
	if isFinal(was) {
		l.breaks(a, "a record that is %s was written over", was["status"])
	}
	if isFinal(now) {
		a.outcomes++
	}
	if a.lost[now["token"]] {
		l.breaks(a, "claim %.8s wrote although it had been superseded", now["token"])
	}
	if was != nil && was["token"] != now["token"] {
		a.lost[was["token"]] = true
	}
	if was["token"] == now["token"] && number(now["write"]) <= number(was["write"]) {
		l.breaks(a, "write number went from %s to %s", was["write"], now["write"])
	}
	if number(now["generation"]) < number(was["generation"]) {
		l.breaks(a, "generation went back from %s to %s", was["generation"], now["generation"])
	}
	if number(now["failures"]) > number(was["failures"]) {
		a.counted++
	}
	if a.counted > a.failed {
		l.breaks(a, "%d failures counted, %d happened: an interruption was counted as one", a.counted, a.failed)
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
		if !l.isPoisoned(func(p queue.Poison) bool { return p.MessageID == r.MessageID }) {
			l.breaks(a, "a message was deleted that nothing stands for")
		}
	case status == checkpoint.Poison:
		if !l.isPoisoned(func(p queue.Poison) bool { return p.ID == id }) {
			l.breaks(a, "the message of a poison job was deleted, and there is no poison message")
		}
	case !status.Final() && !l.isMoved(id):
		l.breaks(a, "a message was deleted while its job is %s, and no other carries it on", status)
	}
}

// isMoved reports whether a job has a message on the on-demand queue.
func (l *ledger) isMoved(id string) bool {
	for _, m := range l.b.server.Messages(l.b.names.OnDemand) {
		if l.jobOf[m.ID] == id {
			return true
		}
	}
	return false
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

func isFinal(meta map[string]string) bool { return checkpoint.Status(meta["status"]).Final() }

// jobOfBlob returns the job whose record has that name.
func jobOfBlob(name string) string { return name[len("hhh/"):] }

func number(s string) int {
	n, _ := strconv.Atoi(s) // an absent one is 0
	return n
}

// short is enough of an id to tell messages apart.
func short(id string) string { return id[max(0, len(id)-6):] }
