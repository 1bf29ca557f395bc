package outages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

// faultyTransport is a transport whose every call may be made to fail.
type faultyTransport struct {
	next policy.Transporter

	mu   sync.Mutex
	fail func(*http.Request) (*http.Response, error) // nil for no faults
}

func (t *faultyTransport) set(fail func(*http.Request) (*http.Response, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail = fail
}

func (t *faultyTransport) Do(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	fail := t.fail
	t.mu.Unlock()
	if fail == nil {
		return t.next.Do(r)
	}
	return fail(r)
}

// useTransport makes a worker use that transport, watch no events, and log errors as
// the programs do, with an explanation.
func useTransport(b *rig.Bed, transport policy.Transporter, log io.Writer) func(*worker.Config) {
	outages := outage.New(explainingLog(log), func() int { return 1 })
	return useAccount(b, b.WatchedAccount(transport, nil, outages.Ended), log)
}

// explainingLog returns a logger for lines that are logged by default, with errors
// explained.
func explainingLog(log io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(azure.Explain(err))
		}
		return a
	}}))
}

// useAccount is useTransport for an account that is connected already.
func useAccount(b *rig.Bed, account *azure.Account, log io.Writer) func(*worker.Config) {
	return func(c *worker.Config) {
		s, own := deployment.StoresOf(account, b.Names), c.Stores
		s.Jobs, s.Control, s.Logs, s.Outputs = own.Jobs, own.Control, own.Logs, own.Outputs
		c.Stores = s
		c.Metadata = nil
		c.Log = explainingLog(log)
	}
}

// connectionError makes calls fail with an error of the network, as package net/http
// returns it.
func connectionError(err error) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Put", URL: r.URL.String(), Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
}

// errorReply makes calls fail with that reply.
func errorReply(status int, code, body string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Request: r, ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"X-Ms-Error-Code": {code}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

// outages are faults that may last for minutes, and how the log describes them.
var outages = map[string]struct {
	fail func(*http.Request) (*http.Response, error)
	logs string
}{
	"no such host": {connectionError(&net.DNSError{Err: "no such host", Name: "account.blob.core.windows.net", IsNotFound: true}),
		"account.blob.core.windows.net: no such host: there is no such host; is the account's name right?"},
	"no connection":      {connectionError(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "connection refused"},
	"no descriptor left": {connectionError(os.NewSyscallError("socket", syscall.EMFILE)), "too many open files"},
	"name server silent": {connectionError(&net.DNSError{Err: "i/o timeout", Name: "account.blob.core.windows.net", IsTimeout: true,
		IsTemporary: true}), "i/o timeout"},
	"connections cut":  {connectionError(io.ErrUnexpectedEOF), "unexpected EOF"},
	"a broken service": {errorReply(500, "InternalError", ""), "500 InternalError"},
	"a network rule":   {errorReply(403, "AuthorizationFailure", ""), "network rules do not let this machine in"},
	"a hanging service": {func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"no answer in time"},
	"a busy service":      {errorReply(503, "ServerBusy", ""), "503 ServerBusy: the storage service asks for fewer calls"},
	"a proxy's page":      {errorReply(502, "", "<html>bad gateway</html>"), "502: not an answer of the storage service"},
	"a sign-in page":      {errorReply(200, "", "<html>sign in</html>"), "answered 200, but not by the storage service"},
	"a role taken away":   {errorReply(403, "AuthorizationPermissionMismatch", ""), "the identity lacks a data role here"},
	"a token refused":     {errorReply(401, "InvalidAuthenticationInfo", ""), "401 InvalidAuthenticationInfo"},
	"a container deleted": {errorReply(404, "ContainerNotFound", ""), "the container does not exist"},
	"and being deleted":   {errorReply(409, "ContainerBeingDeleted", ""), "409 ContainerBeingDeleted"},
}

// TestOutages: storage is unavailable for far longer than a message's visibility
// timeout, with each kind of error. No job is stopped or lost, no step is repeated, no
// failure is counted, a job that ends during the outage is committed later, and the
// log names the cause in a bounded number of lines.
func TestOutages(t *testing.T) {
	proof.Only(t, "hours of virtual time, or thousands of jobs")
	for name, tt := range outages {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				transport, log := &faultyTransport{next: b.Server.Transport()}, &rig.Log{}
				long, brief := &rig.Steps{N: 200, Each: 3 * time.Second}, &rig.Steps{N: 4, Each: 10 * time.Second}
				b.Put("long", "long", "")
				b.Put("brief", "brief", "")
				b.Start("vm_0", job.Kinds{"long": long, "brief": brief, "echo": rig.Echo}, useTransport(b, transport, log))
				time.Sleep(25 * time.Second)
				for _, id := range []string{"long", "brief"} {
					if !b.Record(id).HasState() {
						t.Fatalf("%s has no checkpoint after 25 s", id)
					}
				}
				transport.set(tt.fail)
				b.Put("later", "echo", "1")
				time.Sleep(7 * time.Minute)
				if lines := log.Count(); lines > 30 {
					t.Errorf("%d lines in the log, want at most 30", lines)
				}
				transport.set(nil)
				time.Sleep(8 * time.Minute) // a visibility timeout that had grown, and a poll
				if left := b.MessagesLeft(); left > 0 {
					t.Errorf("%d messages are left", left)
				}
				for _, id := range []string{"brief", "later", "long"} {
					if r := b.Record(id); r.Status != checkpoint.Done {
						t.Errorf("%s is %q, want done", id, r.Status)
					}
				}
				for _, id := range []string{"long", "brief"} {
					if r := b.Record(id); r.Generation != 1 || r.Failures+r.Interruptions+r.ChargedExits > 0 {
						t.Errorf("%s has generation %d, %d failures, %d interruptions, %d unclean exits, want 1 and none", id, r.Generation, r.Failures,
							r.Interruptions, r.ChargedExits)
					}
				}
				if n := long.Repeated("long") + brief.Repeated("brief") + len(b.PoisonMessages()); n > 0 {
					t.Errorf("%d steps repeated or jobs dead-lettered, want none", n)
				}
				if !log.Contains("error", tt.logs) {
					t.Errorf("no error in the log contains %q; they are %q", tt.logs, log.Values("error"))
				}
			})
		})
	}
}

// TestOutageDuringDrain: a worker is terminated while storage is unreachable. Nothing
// can be saved; the message becomes visible when its visibility timeout expires, and
// the job resumes from its last checkpoint.
func TestOutageDuringDrain(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		transport, log := &faultyTransport{next: b.Server.Transport()}, &rig.Log{}
		work := &rig.Steps{N: 200, Each: time.Second}
		b.Put("a", "steps", "")
		p := b.Start("vm_0", job.Kinds{"steps": work}, useTransport(b, transport, log))
		b.WaitFor("a checkpoint", time.Minute, func() bool { return b.Record("a").HasState() })
		transport.set(outages["no connection"].fail)
		time.Sleep(20 * time.Second)
		asked := time.Now()
		p.Stop()
		if took := time.Since(asked); took > 10*time.Second+rig.HeartbeatWrite {
			t.Errorf("SIGTERM to exit = %s, want within the budget of 10s", took)
		}
		if len(log.Find("no time left; the message becomes visible when its visibility timeout expires")) != 1 {
			t.Errorf("the log does not say that the message becomes visible again: %q", log.Values("msg"))
		}
		b.Start("vm_1", job.Kinds{"steps": work})
		b.WaitDone("a", 5*time.Minute)
		if r := b.Record("a"); r.Generation != 2 || r.Failures > 0 || r.ChargedExits > 1 {
			t.Errorf("generation %d, %d failures, %d unclean exits, want 2, 0 and at most 1", r.Generation, r.Failures, r.ChargedExits)
		}
	})
}

// TestDrainEndsOnTime: the end of a drain's budget cancels any call in flight, renewals
// included.
func TestDrainEndsOnTime(t *testing.T) {
	for phase := range 12 { // a renewal is in flight for 8 s of every 10 s
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			transport := &faultyTransport{next: b.Server.Transport()}
			log := &rig.Log{}
			b.Put("a", "steps", "")
			p := b.Start("vm_0", job.Kinds{"steps": &rig.Steps{N: 200, Each: time.Second}}, useTransport(b, transport, log))
			b.WaitFor("a checkpoint", time.Minute, func() bool { return b.Record("a").HasState() })
			transport.set(outages["a hanging service"].fail)
			time.Sleep(20*time.Second + time.Duration(phase)*900*time.Millisecond)
			p.Stop()
			took := time.Duration(log.Find("drained")[0]["since_notice"].(float64))
			if took < 9*time.Second || took > 10*time.Second+50*time.Millisecond {
				t.Errorf("phase %d: notice to drained = %s, want the budget of 10s", phase, took)
			}
		})
	}
}

// TestRoleTakenAwayDuringRestore: a handler that reads a large state waits while the
// worker's role is missing, instead of failing.
func TestRoleTakenAwayDuringRestore(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		transport := &faultyTransport{next: b.Server.Transport()}
		large := make([]byte, 20<<20)
		var failed error
		h := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			state, _, err := j.OpenSaved()
			if err != nil || state == nil {
				j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(large)), nil }, Version: 1})
				<-ctx.Done()
				return nil, ctx.Err()
			}
			head := make([]byte, 1)
			_, err = io.ReadFull(state, head)
			transport.set(outages["a role taken away"].fail)
			time.AfterFunc(5*time.Minute, func() { transport.set(nil) })
			_, rest := io.Copy(io.Discard, state)
			failed = errors.Join(err, rest)
			return nil, failed
		})
		b.Put("a", "h", "")
		p := b.Start("vm_0", job.Kinds{"h": h})
		b.WaitFor("a checkpoint", time.Minute, func() bool { return b.Record("a").HasState() })
		p.Stop()
		b.Start("vm_1", job.Kinds{"h": h}, useTransport(b, transport, io.Discard))
		b.WaitFor("the end", 10*time.Minute, func() bool { return b.Record("a").Status == checkpoint.Done })
		if r := b.Record("a"); failed != nil || r.Failures > 0 {
			t.Errorf("reading = %v, %d failures, want none", failed, r.Failures)
		}
	})
}
