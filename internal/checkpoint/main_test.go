package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const recordsName = "test-jobs"

// ours is the delivery that most tests are about, other a duplicate of it.
var (
	ours  = Delivery{ID: "job-1", Kind: "k", PayloadHash: hashOf([]byte("payload")), MessageID: "m-1"}
	other = Delivery{ID: "job-1", Kind: "k", PayloadHash: hashOf([]byte("payload")), MessageID: "m-2"}
)

// hashOf is the hash of a state of a job without a key.
func hashOf(state []byte) string { return blocks.HashOf(state, chunk, "") }

// rig is a storage account in virtual time with a container of records.
type rig struct {
	*storage.Server
	store *Store
	link  *link
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		way := &link{next: server.Transport()}
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: way})
		if err != nil {
			t.Fatal(err)
		}
		records := account.Container(recordsName)
		if _, err := records.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		server.ResetCounts()
		test(t, &rig{Server: server, store: NewStore(records).WithChunks(chunk), link: way})
		way.check(t)
	})
}

// seed writes the job's record as another worker left it.
func (b *rig) seed(t *testing.T, r Record, body string) Record {
	t.Helper()
	r.ID = ours.ID
	if r.Token == "" {
		r.Token = uuid.NewString()
	}
	if _, err := b.store.put(t.Context(), &r, "", content{data: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	return b.read(t)
}

// writeAsOperator changes the record as somebody does who does not own it: with a
// fresh token.
func (b *rig) writeAsOperator(t *testing.T, change func(*Record)) Record {
	t.Helper()
	r := b.read(t)
	r.Token, r.Write = uuid.NewString(), 0
	change(&r)
	if _, err := b.store.put(t.Context(), &r, r.ETag, content{}); err != nil {
		t.Fatal(err)
	}
	return b.read(t)
}

// read returns the job's record.
func (b *rig) read(t *testing.T) Record {
	t.Helper()
	r, err := b.store.Read(t.Context(), ours.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// body returns the content of the record's blob.
func (b *rig) body(t *testing.T) string {
	t.Helper()
	for _, blob := range b.Blobs(recordsName) {
		_, body, _ := b.ReadBlob(recordsName, blob.Name)
		return string(body)
	}
	t.Fatal("there is no record")
	return ""
}

// claimed returns the claim of a delivery whose record exists, with one state
// saved.
func (b *rig) claimed(t *testing.T) *Claim {
	t.Helper()
	c := b.store.Fresh(ours, "worker-1")
	if err := c.Save(t.Context(), Snapshot{State: []byte("state 1"), Version: 1, Fraction: 0.25, Text: "one"}); err != nil {
		t.Fatal(err)
	}
	return c
}

// acquire makes a delivery the owner of the record.
func (b *rig) acquire(t *testing.T, d Delivery, owner string) *Claim {
	t.Helper()
	found, ruling, err := b.store.Lookup(t.Context(), d)
	if err != nil || ruling != Acquire {
		t.Fatalf("Look = %s, %v, want take", ruling, err)
	}
	c, err := b.store.Acquire(t.Context(), d, found, owner)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// trouble is a fault of the next calls: that many tries of writes, then that many
// tries of reads.
type trouble struct {
	writes, reads int
	fault         storage.Fault
}

// cause makes the trouble happen.
func (b *rig) cause(tr trouble) {
	b.OnCall(func(c storage.Call) storage.Fault {
		switch {
		case isWrite(c.Operation) && tr.writes > 0:
			tr.writes--
			return tr.fault
		case c.Operation == storage.OpGetBlobProperties && tr.writes == 0 && tr.reads > 0:
			tr.reads--
			return storage.Fault{DropReply: true}
		}
		return storage.Fault{}
	})
}

func isWrite(operation string) bool {
	return operation == storage.OpPutBlob || operation == storage.OpSetBlobMetadata
}

// tries is how often the SDK sends one call.
const tries = 4

// conflictIn returns the conflict in err, or nil.
func conflictIn(err error) *ConflictError {
	var conflict *ConflictError
	errors.As(err, &conflict)
	return conflict
}

// link is the way to storage. It sees every try of every call, and can hold a
// write back so that it lands late.
type link struct {
	next policy.Transporter

	mu     sync.Mutex
	writes map[[2]string]string // by token and number: the call's id
	twice  [][2]string          // numbers that two calls had
	step   step
}

// step stands between a client and storage: send lets the request through, now
// or later.
type step func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error)

// Do implements policy.Transporter.
func (l *link) Do(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.note(r)
	step := l.step
	l.mu.Unlock()
	if step == nil {
		return l.next.Do(r)
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	return step(r, func() (*http.Response, error) {
		sent := r.Clone(context.WithoutCancel(r.Context()))
		sent.Body = io.NopCloser(bytes.NewReader(body))
		return l.next.Do(sent)
	})
}

// metadataHeader returns a metadata value that a request carries. The SDK sets
// its name in lower case, where Header.Get does not look.
func metadataHeader(r *http.Request, key string) string {
	for name, values := range r.Header {
		if strings.EqualFold(name, "x-ms-meta-"+key) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// note remembers which call used a write number.
func (l *link) note(r *http.Request) {
	token, number := metadataHeader(r, "token"), metadataHeader(r, "write")
	if token == "" || number == "" {
		return
	}
	if l.writes == nil {
		l.writes = map[[2]string]string{}
	}
	key, call := [2]string{token, number}, r.Header.Get("x-ms-client-request-id")
	if before, ok := l.writes[key]; ok && before != call {
		l.twice = append(l.twice, key)
	}
	l.writes[key] = call
}

// check demands that no write number was used for two calls.
func (l *link) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.twice {
		t.Errorf("claim %s used write number %s for two calls", key[0], key[1])
	}
}

// lateness says when a write lands that was on its way for long.
type lateness int

const (
	afterRepeat lateness = iota // after the SDK's own repeat of it
	beforeRead                  // all tries got no answer; before the read that settles
	afterRead                   // all tries got no answer; after that read, before the repeat
)

// late makes the next write's first try land late.
func (l *link) late(when lateness) {
	var waiting func() (*http.Response, error)
	land := func() {
		if waiting != nil {
			_, _ = waiting()
			waiting = nil
		}
	}
	writes := 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step = func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		write := r.Method == http.MethodPut
		if write {
			writes++
		}
		switch {
		case write && writes == 1:
			waiting = send
			return nil, syscall.ECONNRESET
		case write && writes == 2 && when == afterRepeat:
			defer land()
		case write && writes <= tries && when != afterRepeat:
			return nil, syscall.ECONNRESET
		case write && when == afterRead, !write && when == beforeRead:
			land()
		}
		return send()
	}
}

// noon is a fixed time, of no real clock.
var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)
