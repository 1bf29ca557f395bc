package worker

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/emulator/token"
	"github.com/spotworker/spotworker/job"
)

// TestNameResolutionOutage: names do not resolve for longer than the visibility,
// for this worker alone. Work goes on; what it did is saved when names are back.
func TestNameResolutionOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		way := &switchable{next: b.server.Transport()}
		work := &steps{n: 400, each: 300 * time.Millisecond}
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) { b.connect(way).into(c) })
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("long").HasState() })
		way.off.Store(true)
		time.Sleep(90 * time.Second)
		way.off.Store(false)
		goesOn(t, b, p, work)
	})
}

// TestTokenOutage: the identity endpoint is down for minutes. A worker that has a
// token does not notice; one whose token ends meanwhile works on without storage
// until it gets another.
func TestTokenOutage(t *testing.T) {
	// The SDK would ask another endpoint than the metadata service if one of
	// these was set.
	for _, name := range []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET", "IMDS_ENDPOINT"} {
		t.Setenv(name, "")
	}
	const life = 10 * time.Minute
	issuer := token.NewIssuer()
	inBubbleOn(t, storage.Options{Tokens: issuer}, imds.Options{Tokens: issuer, TokenLife: life}, func(t *testing.T, b *bench) {
		client := uuid.NewString() // the SDK keeps tokens for the whole process, by this
		b.identity = []imds.Identity{{ClientID: client, ObjectID: uuid.NewString(), ResourceID: "/subscriptions/s/identity"}}
		began := time.Now()
		var refused atomic.Int64
		b.metadata.OnRequest(func(r imds.Request) imds.Fault {
			down := time.Since(began) > life/4 && time.Since(began) < life+4*time.Minute
			if !down || !strings.Contains(r.Path, "/oauth2/token") {
				return imds.Fault{}
			}
			refused.Add(1)
			return imds.Fault{Status: http.StatusServiceUnavailable}
		})
		work := &steps{n: 1200, each: time.Second} // 20 min
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work}, func(c *Config) {
			at := b.server.Endpoints()
			account, err := azure.Connect(azure.Config{
				Account: storage.DefaultAccount, ClientID: client, BlobEndpoint: at.Blob, QueueEndpoint: at.Queue,
				Transport: byHost{storage: b.server.Transport(), metadata: b.metadata.VM("vm_0").RoundTripper()},
			})
			if err != nil {
				t.Fatal(err)
			}
			b.storesOf(account).into(c)
		})
		time.Sleep(life + 3*time.Minute)
		if n := len(p.log.find("checkpoint not saved; the one before stands")); n == 0 || refused.Load() == 0 {
			t.Errorf("checkpoints that failed without a token = %d, tokens refused = %d, want some", n, refused.Load())
		}
		goesOn(t, b, p, work)
	})
}

// TestOwnMessageComesBack: renewals fail for longer than the visibility while claims
// do not, so that a worker claims the message that it has in hand. The job goes on
// under the new claim.
func TestOwnMessageComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		work := &steps{n: 400, each: 300 * time.Millisecond}
		b.put("long", "steps", "")
		p := b.start("vm_0", job.Kinds{"steps": work})
		b.waitFor("a checkpoint", 20*time.Second, func() bool { return b.record("long").HasState() })
		b.server.OnCall(func(c storage.Call) storage.Fault {
			return storage.Fault{DropRequest: c.Operation == storage.OpUpdateMessage}
		})
		time.Sleep(time.Minute)
		b.server.OnCall(nil)
		if m := b.server.Messages(b.names.Queue); len(m) != 1 || m[0].DequeueCount < 2 {
			t.Fatalf("messages = %+v, want one that was claimed again", m)
		}
		goesOn(t, b, p, work)
	})
}

// goesOn waits for the end of the job "long", and demands that its one run went
// on all the time.
func goesOn(t *testing.T, b *bench, p *process, work *steps) {
	t.Helper()
	b.waitDone("long", 30*time.Minute)
	b.waitFor("message gone", 10*time.Minute, func() bool { return b.left() == 0 })
	if r := b.record("long"); r.Generation != 1 || r.Failures != 0 || r.Interruptions != 0 {
		t.Errorf("record = generation %d, %d failures, %d interruptions, want 1, 0, 0: work went on", r.Generation, r.Failures, r.Interruptions)
	}
	if got := work.repeated("long"); got != 0 {
		t.Errorf("steps repeated = %d, want 0", got)
	}
	if n := len(p.log.find("job started")); n != 1 {
		t.Errorf("job was started %d times, want once", n)
	}
}

// switchable is a way to storage on which names can stop to resolve.
type switchable struct {
	next policy.Transporter
	off  atomic.Bool
}

func (s *switchable) Do(r *http.Request) (*http.Response, error) {
	if s.off.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: r.URL.Hostname(), IsTemporary: true}}
	}
	return s.next.Do(r)
}

// byHost is a network that has the storage account and, at all other addresses,
// the VM's metadata service.
type byHost struct {
	storage  policy.Transporter
	metadata http.RoundTripper
}

func (n byHost) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Hostname(), ".emulator") {
		return n.storage.Do(r)
	}
	return n.metadata.RoundTrip(r)
}
