package outage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/go-cmp/cmp"
)

// watched is a Watch with three jobs, whose log is kept.
type watched struct {
	*Watch
	log   bytes.Buffer
	begun time.Time
}

func newWatched() *watched {
	w := &watched{begun: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Watch = New(slog.New(slog.NewJSONHandler(&w.log, nil)), func() int { return 3 })
	return w
}

// call ends a call that took 100 ms, at a time after the beginning.
func (w *watched) call(at time.Duration, service, operation, path string, err error) {
	address := &url.URL{Scheme: "https", Host: "account." + service + ".core.windows.net", Path: path}
	end := w.begun.Add(at)
	c := Call{Service: service, Operation: operation, Begun: end.Add(-100 * time.Millisecond), Ended: end, Fault: Of(err), address: address}
	if c.Fault != None {
		c.Err = err
	}
	c.reads = service == "blob" && strings.HasPrefix(operation, "Get")
	w.Ended(c)
}

// lines returns the logged lines: level, message, and the attributes of those names.
func (w *watched) lines(t *testing.T, names ...string) (lines []string) {
	t.Helper()
	for line := range bytes.Lines(w.log.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(fields["level"], " ", fields["msg"])
		for _, name := range names {
			if value, ok := fields[name]; ok && value != "" {
				text += fmt.Sprint(" ", name, "=", value)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

var errCut = &Unanswered{errors.New("connection reset")}

func (w *watched) save(at time.Duration, err error) {
	w.call(at, "blob", "PutBlob", "/jobs/abc/1", err)
}

// TestOutageIsThreeLines: an outage of 125 s is a line when it begins, one each minute,
// and one when it is over, however many calls fail.
func TestOutageIsThreeLines(t *testing.T) {
	w := newWatched()
	w.save(-time.Second, nil)
	for at := 100 * time.Millisecond; at < 125*time.Second; at += 100 * time.Millisecond {
		w.save(at, errCut)
		w.call(at, "queue", "UpdateMessage", "/jobs/messages/1", errCut)
	}
	w.save(125*time.Second, nil)
	w.call(125*time.Second, "queue", "UpdateMessage", "/jobs/messages/1", nil)
	w.save(126*time.Second, nil)
	want := []string{
		"WARN storage unreachable; running jobs continue, what needs it waits resource=account.blob.core.windows.net " +
			"since=2026-01-02T03:04:05Z jobs=3 calls_failed=1 error=connection reset",
		"WARN storage still unreachable resource=account.blob.core.windows.net, account.queue.core.windows.net since=2026-01-02T03:04:05Z " +
			"jobs=3 calls_failed=1201 error=connection reset",
		"WARN storage still unreachable resource=account.blob.core.windows.net, account.queue.core.windows.net since=2026-01-02T03:04:05Z " +
			"jobs=3 calls_failed=2401 error=connection reset",
		"INFO storage reachable again jobs=3 calls_failed=2498 after=1.25e+11",
	}
	if diff := cmp.Diff(want, w.lines(t, "resource", "since", "jobs", "calls_failed", "error", "after")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestFlappingIsRare: an outage that comes and goes each second is two lines a minute at
// most, and calls that fail while others are answered are one.
func TestFlappingIsRare(t *testing.T) {
	w := newWatched()
	for at := time.Second; at < 10*time.Minute; at += time.Second {
		w.save(at, errCut)
		w.save(at+500*time.Millisecond, nil)
	}
	if got := len(w.lines(t)); got < 10 || got > 20 {
		t.Errorf("%d lines in 10 minutes, want 10 to 20", got)
	}
	w = newWatched()
	for at := time.Second; at < 10*time.Minute; at += time.Second {
		w.save(at, nil)
		w.save(at+50*time.Millisecond, errCut) // began before that answer
	}
	if got := w.lines(t); len(got) != 9 || got[0] != "WARN some calls to storage failed and were repeated" {
		t.Errorf("lines = %q, want one a minute about calls that failed", got)
	}
}

// TestDeniedNamesTheRole: a refusal names the operations and the role that is missing,
// and is over when all of them succeed or are no longer made.
func TestDeniedNamesTheRole(t *testing.T) {
	denied := &azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthorizationPermissionMismatch"}
	w := newWatched()
	w.call(0, "queue", "GetMessages", "/jobs/messages", nil)
	for at := time.Second; at < 70*time.Second; at += time.Second {
		w.save(at, denied)
		w.call(at, "queue", "UpdateMessage", "/jobs/messages/1", denied)
		w.call(at, "queue", "GetMessages", "/jobs/messages", nil)
	}
	w.save(70*time.Second, nil)
	w.call(2*time.Minute+2*time.Second, "queue", "GetMessages", "/jobs/messages", nil)
	w.call(7*time.Minute, "queue", "GetMessages", "/jobs/messages", nil)
	const blobs, queues = "Storage Blob Data Contributor", "Storage Queue Data Contributor"
	want := []string{
		"ERROR storage denies access; running jobs continue, what is denied waits resource=PutBlob on container jobs missing_role=" + blobs,
		"ERROR storage still denies access resource=PutBlob on container jobs, UpdateMessage on queue jobs missing_role=" + blobs + ", " + queues,
		"ERROR storage still denies access resource=UpdateMessage on queue jobs missing_role=" + queues,
		"INFO storage grants access again",
	}
	if diff := cmp.Diff(want, w.lines(t, "resource", "missing_role")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestFirewallIsNoRole: a network rule is denied too, and no role would help.
func TestFirewallIsNoRole(t *testing.T) {
	w := newWatched()
	w.save(time.Second, &azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthorizationFailure"})
	want := []string{"ERROR storage denies access; running jobs continue, what is denied waits resource=PutBlob on container jobs"}
	if diff := cmp.Diff(want, w.lines(t, "resource", "missing_role")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestThrottlingEndsWhenQuiet: answers between throttled calls do not end throttling; a
// minute without does.
func TestThrottlingEndsWhenQuiet(t *testing.T) {
	busy := &azcore.ResponseError{StatusCode: 503, ErrorCode: "ServerBusy"}
	w := newWatched()
	for at := time.Second; at < 90*time.Second; at += time.Second {
		w.save(at, busy)
		w.save(at, nil)
	}
	for at := 90 * time.Second; at < 4*time.Minute; at += time.Second {
		w.save(at, nil)
	}
	want := []string{
		"WARN storage throttles this worker; running jobs continue, calls are repeated later",
		"WARN storage still throttles this worker",
		"WARN storage still throttles this worker",
		"INFO storage no longer throttles this worker",
	}
	if diff := cmp.Diff(want, w.lines(t)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestOptionalContainerMayBeMissing: a read from a container that does not exist is no
// fault, since it may be optional; a write is a fault.
func TestOptionalContainerMayBeMissing(t *testing.T) {
	missing := &azcore.ResponseError{StatusCode: 404, ErrorCode: "ContainerNotFound"}
	w := newWatched()
	w.call(time.Second, "blob", "GetBlob", "/control/control", missing)
	if got := w.lines(t); len(got) > 0 {
		t.Errorf("lines = %q, want none", got)
	}
	w.save(2*time.Second, missing)
	w.call(3*time.Second, "blob", "GetBlob", "/control/control", missing)
	w.save(4*time.Second, nil)
	want := []string{
		"ERROR queue or container does not exist; running jobs continue, what needs it waits resource=container jobs",
		"INFO queue or container exists again",
	}
	if diff := cmp.Diff(want, w.lines(t, "resource")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestOptionalCallsMayBeDenied: a call that may be denied is no fault of the worker.
func TestOptionalCallsMayBeDenied(t *testing.T) {
	w := newWatched()
	w.Ended(Call{Service: "queue", Operation: "GetQueueMetadata", Ended: w.begun, Fault: Denied, may: true,
		Err: &azcore.ResponseError{StatusCode: 403}})
	if got := w.lines(t); len(got) > 0 {
		t.Errorf("lines = %q, want none", got)
	}
	w.Ended(Call{Service: "queue", Operation: "GetQueueMetadata", Ended: w.begun, Fault: Denied, Err: &azcore.ResponseError{StatusCode: 403}})
	if got := w.lines(t); len(got) != 1 {
		t.Errorf("lines = %q, want one about a call that may not be denied", got)
	}
}

// TestQuiet: a worker that warms up logs its own faults; a fault that lasts is logged
// afterwards.
func TestQuiet(t *testing.T) {
	w := newWatched()
	w.Quiet(true)
	w.save(time.Second, errCut)
	w.save(2*time.Minute, errCut)
	if got := w.lines(t); len(got) > 0 {
		t.Errorf("lines while quiet = %q, want none", got)
	}
	w.Quiet(false)
	w.save(2*time.Minute+time.Second, errCut)
	want := []string{"WARN storage unreachable; running jobs continue, what needs it waits"}
	if diff := cmp.Diff(want, w.lines(t)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestTargets: the target of a call, with the account in the host and, in emulators, in
// the path.
func TestTargets(t *testing.T) {
	for address, want := range map[string]string{
		"https://account.queue.core.windows.net/jobs/messages/1": "queue jobs",
		"https://account.queue.core.windows.net/jobs":            "queue jobs",
		"http://127.0.0.1:10001/devstoreaccount1/jobs/messages":  "queue jobs",
		"https://account.queue.core.windows.net/":                "queue service",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Call{Service: "queue", address: u}).target(); got != want {
			t.Errorf("target of %s = %q, want %q", address, got, want)
		}
	}
}
