package queue

import (
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	jobsName     = "test-jobs"
	poisonName   = "test-jobs-poison"
	payloadsName = "test-payloads"
)

// rig is a storage account in virtual time with the queues and the container
// that this package uses.
type rig struct {
	*storage.Server
	jobs, poison *Queue
	payloads     *Payloads
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		b := &rig{
			Server: server,
			jobs:   New(account.Queue(jobsName), jobsName), poison: New(account.Queue(poisonName), poisonName),
			payloads: NewPayloads(account.Container(payloadsName)),
		}
		for _, q := range []*Queue{b.jobs, b.poison} {
			if err := q.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := account.Container(payloadsName).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		server.ResetCounts()
		test(t, b)
	})
}

// claim puts the text on the queue of jobs and claims it for 30 s.
func (b *rig) claim(t *testing.T, text string) *Lease {
	t.Helper()
	if err := b.jobs.putText(t.Context(), text, 0); err != nil {
		t.Fatal(err)
	}
	return b.claimNext(t)
}

// claimNext claims the one message that is visible.
func (b *rig) claimNext(t *testing.T) *Lease {
	t.Helper()
	leases, err := b.jobs.Claim(t.Context(), MaxClaim, 30*time.Second)
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %d messages, %v, want 1", len(leases), err)
	}
	return leases[0]
}

// only returns the one message of a queue.
func (b *rig) only(t *testing.T, queueName string) storage.Message {
	t.Helper()
	messages := b.Messages(queueName)
	if len(messages) != 1 {
		t.Fatalf("queue %s holds %d messages, want 1", queueName, len(messages))
	}
	return messages[0]
}

// faultOn makes the next n calls of that operation suffer f.
func (b *rig) faultOn(operation string, n int, f storage.Fault) {
	b.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation != operation || n == 0 {
			return storage.Fault{}
		}
		n--
		return f
	})
}

// allTries is more tries than the SDK makes of one call.
const allTries = 100

// encode returns an envelope's text, or ends the test.
func encode(t *testing.T, e Envelope) string {
	t.Helper()
	text, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decode reads an envelope's text, or ends the test.
func decode(t *testing.T, text string) Envelope {
	t.Helper()
	e, err := Decode(text)
	if err != nil {
		t.Fatalf("Decode(%.80q): %v", text, err)
	}
	return e
}

// plain returns the JSON in a text of ours.
func plain(t testing.TB, text string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatalf("text is not base64: %v", err)
	}
	return string(raw)
}

func inBase64(json string) string { return base64.StdEncoding.EncodeToString([]byte(json)) }

func jsonPayload(t testing.TB, raw string) Payload {
	t.Helper()
	p, err := JSONPayload([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// exactly compares envelopes with all they hold.
var exactly = cmp.AllowUnexported(Envelope{}, Payload{}, Ref{})

// noon is a fixed time, of no real clock.
var noon = time.Date(2026, time.March, 9, 12, 0, 0, 0, time.UTC)
