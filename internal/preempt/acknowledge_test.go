package preempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/emulator/imds"
)

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

// The service compares names of fields with their case; encoding/json, which reads
// what other tests send, does not.
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

// TestAcknowledgeTries: what may pass is tried again a few times, what is
// refused is not.
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
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("%s: it took %s, want at most 30s", tt.name, took)
			}
		})
	}
}

func TestAcknowledgeOfAnEventThatIsGone(t *testing.T) {
	_, _, c := emulate(t, imds.Options{})
	err := c.Acknowledge(t.Context(), "no-such-event")
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Status != http.StatusBadRequest {
		t.Errorf("Acknowledge of an unknown event = %v, want a StatusError 400", err)
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
