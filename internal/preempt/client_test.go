package preempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/test/guard"
)

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1":              "http://127.0.0.1",
		"http://127.0.0.1/":             "http://127.0.0.1",
		"http://127.0.0.1:1234/vms/a":   "http://127.0.0.1:1234/vms/a",
		"http://127.0.0.1:1234/vms/a//": "http://127.0.0.1:1234/vms/a",
		"https://[::1]:8443":            "https://[::1]:8443",
	} {
		c, err := NewClient(endpoint)
		if err != nil {
			t.Errorf("NewClient(%s): %v", endpoint, err)
			continue
		}
		if c.base != want {
			t.Errorf("base of %s = %s, want %s", endpoint, c.base, want)
		}
	}
	for _, endpoint := range []string{
		"", "none", "127.0.0.1:80", "ftp://127.0.0.1", "http://", "http:///x", "http://%",
		"http://127.0.0.1?x=1", "http://127.0.0.1?", "http://127.0.0.1#x", "http://user:hunter2@127.0.0.1",
		"http://user:hunter2@127.0.0.1:port",
	} {
		_, err := NewClient(endpoint)
		if err == nil || !strings.HasPrefix(err.Error(), "metadata endpoint: ") {
			t.Errorf("NewClient(%q) = %v, want an error about the endpoint", endpoint, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("NewClient(%q) = %v, which shows the password", endpoint, err)
		}
	}
}

func TestOwnTransportUsesNoProxy(t *testing.T) {
	c, err := NewClient(guard.Loopback(t, "http://127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok || transport.Proxy != nil {
		t.Errorf("transport = %#v, want one of the client's own without a proxy", c.http.Transport)
	}
}

// serve starts a server on loopback and returns a client of it that has the
// client's own transport.
func serve(t *testing.T, handler http.Handler, path string) *Client {
	t.Helper()
	srv := httptest.NewServer(handler)
	c, err := NewClient(guard.Loopback(t, srv.URL+path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}

func TestClientOverHTTP(t *testing.T) {
	s := imds.New(imds.Options{})
	s.AddVM(imds.VM{Name: "set_1", VMID: "id", ScaleSet: "set", Zone: "3", Tags: map[string]string{"k": "v"}, UserData: "aGk="})
	c := serve(t, s.Handler(), "/vms/set_1")

	instance, err := c.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Instance{
		Identity: Identity{
			Name: "set_1", VMID: "id", ScaleSet: "set", Location: "westeurope", Size: "Standard_D2as_v5", Zone: "3",
			Priority: "Spot", EvictionPolicy: "Delete",
			ResourceID: "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg" +
				"/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/1",
		},
		Tags:     map[string]string{"k": "v"},
		UserData: "aGk=",
	}
	if diff := cmp.Diff(want, instance); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}

	id, err := s.SimulateEviction("set_1")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	doc, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if doc.ReceivedAt.Before(before) || doc.ReceivedAt.After(time.Now()) {
		t.Errorf("received at %s, want after %s", doc.ReceivedAt, before)
	}
	if age := doc.ReceivedAt.Sub(doc.Date); doc.Date.IsZero() || age < 0 || age > 10*time.Second {
		t.Errorf("date = %s, want that of the answer, received at %s", doc.Date, doc.ReceivedAt)
	}
	if d := Decide(doc, instance.Identity, doc.Now(time.Now())); d.Action != Drain || d.Event.ID != id {
		t.Errorf("decision = %+v, want to drain for %s", d, id)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	status := func(code int) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*StatusError](err)
			return ok && e.Status == code
		}
	}
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	noEvents := []byte(`{"DocumentIncarnation":1,"Events":[]}`)
	huge := append([]byte(`{"DocumentIncarnation":1,"Events":[]}`), make([]byte, maxAnswer)...)

	for _, tt := range []struct {
		name  string
		fault imds.Fault
		want  func(error) bool
	}{
		{"404", imds.Fault{Status: 404}, status(404)},
		{"410", imds.Fault{Status: 410}, status(410)},
		{"429", imds.Fault{Status: 429}, status(429)},
		{"500", imds.Fault{Status: 500}, status(500)},
		{"302", imds.Fault{Status: 302}, status(302)},
		{"204", imds.Fault{Status: 204, Body: []byte{}}, status(204)},
		{"a document with an error status", imds.Fault{Status: 500, Body: noEvents}, status(500)},
		{"an oversize error", imds.Fault{Status: 500, Body: huge}, status(500)},
		{"an error body with 200", imds.Fault{Body: []byte(`{"error":"x"}`)}, is(ErrMalformed)},
		{"garbage", imds.Fault{Body: []byte("<html>")}, is(ErrMalformed)},
		{"nothing", imds.Fault{Body: []byte{}}, is(ErrMalformed)},
		{"oversize", imds.Fault{Body: huge}, is(ErrTooLarge)},
		{"closed connection", imds.Fault{Cut: true}, is(io.ErrUnexpectedEOF)},
	} {
		s, _, c := emulate(t, imds.Options{})
		s.OnRequest(func(imds.Request) imds.Fault { return tt.fault })
		if doc, err := c.Events(t.Context()); !tt.want(err) {
			t.Errorf("Events with %s = %+v, %v", tt.name, doc, err)
		}
		if instance, err := c.Instance(t.Context()); !tt.want(err) {
			t.Errorf("Instance with %s = %+v, %v", tt.name, instance, err)
		}
	}
}

// TestBodyThatBreaksOff: the beginning of a document is no document, also where
// what arrived is one.
func TestBodyThatBreaksOff(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"DocumentIncarnation":1,"Events":[],"name":"a"}`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), "")
	if doc, err := c.Events(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Events whose body breaks off = %+v, %v, want io.ErrUnexpectedEOF", doc, err)
	}
	if instance, err := c.Instance(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Instance whose body breaks off = %+v, %v, want io.ErrUnexpectedEOF", instance, err)
	}
}

func TestLargestAnswerIsRead(t *testing.T) {
	body := []byte(`{"DocumentIncarnation":1,"Events":[]}`)
	padded := append(body, []byte(strings.Repeat(" ", maxAnswer-len(body)))...)
	s, _, c := emulate(t, imds.Options{})
	s.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Body: padded} })
	if doc, err := c.Events(t.Context()); err != nil || doc.Incarnation != "1" {
		t.Errorf("Events of %d bytes = %+v, %v, want a document", len(padded), doc, err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed bool
	mux := http.NewServeMux()
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) {
		followed = true
		fmt.Fprint(w, `{"DocumentIncarnation":1,"Events":[]}`)
	})
	mux.Handle("/", http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect))
	c := serve(t, mux, "")

	_, err := c.Events(t.Context())
	if e, ok := errors.AsType[*StatusError](err); !ok || e.Status != http.StatusTemporaryRedirect {
		t.Errorf("Events redirected = %v, want a StatusError 307", err)
	}
	if followed {
		t.Error("the redirect was followed")
	}
}

func TestMissingOrOddDateIsZero(t *testing.T) {
	for _, date := range []string{"", "yesterday"} {
		c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Date"] = nil // net/http would add one
			if date != "" {
				w.Header().Set("Date", date)
			}
			fmt.Fprint(w, `{"DocumentIncarnation":1,"Events":[]}`)
		}), "")
		doc, err := c.Events(t.Context())
		if err != nil || !doc.Date.IsZero() {
			t.Errorf("Events with Date %q = date %s, %v, want zero", date, doc.Date, err)
		}
	}
}

func TestStatusErrorText(t *testing.T) {
	for _, tt := range []struct {
		body string
		want string
	}{
		{`{"error":"Not found. Try later."}`, "metadata service answered 410 Gone: Not found. Try later."},
		{`{"error":"a\nb\u001b[31m"}`, "metadata service answered 410 Gone: a b [31m"},
		{`{"error":"` + strings.Repeat("é", 300) + `"}`, "metadata service answered 410 Gone: " + strings.Repeat("é", 200) + "..."},
		{`{"error":{"code":1}}`, "metadata service answered 410 Gone"},
		{`<html>`, "metadata service answered 410 Gone"},
		{``, "metadata service answered 410 Gone"},
	} {
		if got := statusError(410, []byte(tt.body)).Error(); got != tt.want {
			t.Errorf("error for body %s =\n%s\nwant\n%s", tt.body, got, tt.want)
		}
	}
}

func TestAcknowledgeStartsTheEvent(t *testing.T) {
	s, _, c := emulate(t, imds.Options{})
	id := s.Schedule(imds.Event{Type: "Reboot", Resources: []string{"a", "b"}})
	other := s.Schedule(imds.Event{Type: "Reboot", Resources: []string{"a"}})
	for range 2 { // the second time it has started already, which is fine
		if err := c.Acknowledge(t.Context(), id); err != nil {
			t.Fatalf("Acknowledge = %v, want nil", err)
		}
	}
	if e, _ := s.Event(id); e.Status != StatusStarted {
		t.Errorf("status after an acknowledgement = %s, want Started", e.Status)
	}
	if e, _ := s.Event(other); e.Status != StatusScheduled {
		t.Errorf("status of another event = %s, want Scheduled", e.Status)
	}
}

// sentBodies keeps the bodies of requests, and answers each with 200.
type sentBodies []string

func (s *sentBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	*s = append(*s, string(body))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, err
}

// The service compares names of fields with their case; encoding/json, which reads the
// requests of other tests, does not.
func TestAcknowledgementOnTheWire(t *testing.T) {
	var sent sentBodies
	c, err := NewClient("http://127.0.0.1:1", WithTransport(&sent))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Acknowledge(t.Context(), "602D9444-D2CD-49C7-8624-8643E7171297"); err != nil {
		t.Fatal(err)
	}
	want := sentBodies{`{"StartRequests":[{"EventId":"602D9444-D2CD-49C7-8624-8643E7171297"}]}`}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("bodies sent (-want +got):\n%s", diff)
	}
}

// TestAcknowledgeTries: a transient error is tried again a few times, a refusal is not.
func TestAcknowledgeTries(t *testing.T) {
	const forever = 100
	for _, tt := range []struct {
		name  string
		fault imds.Fault
		fails int // how many requests meet the fault
		sent  int
		ok    bool
	}{
		{"no trouble", imds.Fault{}, 0, 1, true},
		{"refused", imds.Fault{Status: http.StatusBadRequest}, forever, 1, false},
		{"forbidden", imds.Fault{Status: http.StatusForbidden}, forever, 1, false},
		{"not found, twice", imds.Fault{Status: http.StatusNotFound}, 2, 3, true},
		{"gone, once", imds.Fault{Status: http.StatusGone}, 1, 2, true},
		{"throttled, three times", imds.Fault{Status: http.StatusTooManyRequests}, 3, 4, true},
		{"a server error for ever", imds.Fault{Status: http.StatusInternalServerError}, forever, acknowledgeTries, false},
		{"cut, once", imds.Fault{Cut: true}, 1, 2, true},
		{"no answer for ever", imds.Fault{Hang: true}, forever, acknowledgeTries, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, vm, c := emulate(t, imds.Options{})
			id := s.Schedule(imds.Event{Type: "Reboot", Resources: []string{"a"}})
			s.OnRequest(func(r imds.Request) imds.Fault {
				if r.Method == http.MethodPost && r.N <= tt.fails {
					return tt.fault
				}
				return imds.Fault{}
			})
			begin := time.Now()
			err := c.Acknowledge(t.Context(), id)
			if (err == nil) != tt.ok {
				t.Errorf("%s: Acknowledge = %v, want success %t", tt.name, err, tt.ok)
			}
			if got := vm.Stats().Requests; got != tt.sent {
				t.Errorf("%s: %d requests, want %d", tt.name, got, tt.sent)
			}
			if e, _ := s.Event(id); (e.Status == StatusStarted) != tt.ok {
				t.Errorf("%s: status = %s, want Started %t", tt.name, e.Status, tt.ok)
			}
			if took := time.Since(begin); took > 65*time.Second {
				t.Errorf("%s: it took %s, want at most 65s", tt.name, took)
			}
		})
	}
}

func TestAcknowledgeEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := emulate(t, imds.Options{})
		s.OnRequest(func(imds.Request) imds.Fault { return imds.Fault{Status: http.StatusInternalServerError} })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := c.Acknowledge(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acknowledge = %v, want context.DeadlineExceeded", err)
		}
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("it took %s, want 100ms", took)
		}
	})
}
