package preempt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fuzzVM is the VM whose watcher is fuzzed. The name occurs in no other word of
// a document.
var fuzzVM = Identity{Name: "qvmq_7"}

const (
	noEvents   = `{"DocumentIncarnation":%d,"Events":[]}`
	ourPreempt = `{"DocumentIncarnation":%d,"Events":[{"EventId":"E","EventStatus":"Scheduled","EventType":"Preempt",` +
		`"ResourceType":"VirtualMachine","Resources":["qvmq_7"],"NotBefore":"",` +
		`"Description":"","EventSource":"Platform","DurationInSeconds":-1}]}`
)

// scripted is a metadata service that answers each poll with the next line of a
// script, and after its end with a document that shows an eviction. A line is a
// letter and a body:
//
//	o body   200          s body   200 after 4 s
//	4, 9, 5  404, 429, 500 with the body       r  a redirect
//	h        no answer    c        the connection is closed
//
// A body of "-" is a document without events.
type scripted struct {
	mu     sync.Mutex
	lines  []string
	served []string // bodies that came with 200
	end    time.Time
	sent   int
}

// overFor reports whether the script came to its end that long ago.
func (s *scripted) overFor(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.end.IsZero() && time.Since(s.end) >= d
}

// maxLines bounds a script, and so the time that one takes.
const maxLines = 8

func newScripted(script []byte) *scripted {
	lines := strings.Split(string(script), "\n")
	return &scripted{lines: lines[:min(len(lines), maxLines)]}
}

// next returns the number of this poll and the line for it, and whether the
// script continues.
func (s *scripted) next() (number int, line string, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	if len(s.lines) == 0 {
		if s.end.IsZero() {
			s.end = time.Now()
		}
		return s.sent, "", false
	}
	line, s.lines = s.lines[0], s.lines[1:]
	return s.sent, line, true
}

var errClosed = errors.New("connection closed")

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	number, line, more := s.next()
	kind, body := byte('o'), fmt.Sprintf(ourPreempt, 1_000_000)
	if more {
		if line == "" {
			line = "-"
		}
		kind, body = line[0], line[1:]
	}
	if body == "-" {
		body = fmt.Sprintf(noEvents, number)
	}
	status := http.StatusOK
	switch kind {
	case 'h':
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 'c':
		return nil, errClosed
	case 's':
		select {
		case <-time.After(4 * time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	case '4':
		status = http.StatusNotFound
	case '9':
		status = http.StatusTooManyRequests
	case '5':
		status = http.StatusInternalServerError
	case 'r':
		status = http.StatusFound
	}
	if status == http.StatusOK {
		s.mu.Lock()
		s.served = append(s.served, body)
		s.mu.Unlock()
	}
	return &http.Response{
		StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
	}, nil
}

// shows reports whether an answer was served that may cause such a drain: a JSON object
// with a list of events, and in it this VM's name and the event's type. It reads
// JSON in another way than the parser does.
func (s *scripted) shows(d Decision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, body := range s.served {
		var object map[string]json.RawMessage
		if json.Unmarshal(trimBOM([]byte(body)), &object) != nil {
			continue
		}
		for name, value := range object {
			var list []json.RawMessage
			if strings.EqualFold(name, "events") && json.Unmarshal(value, &list) == nil &&
				slices.ContainsFunc(list, func(entry json.RawMessage) bool { return isObject(entry) && maySay(entry, d.Event.Type) }) {
				return true
			}
		}
	}
	return false
}

// maySay reports whether an event has the words that a drain of this VM takes, or
// spells them so that only a JSON reader sees them.
func maySay(event json.RawMessage, kind string) bool {
	text := strings.ToLower(string(event))
	return strings.Contains(text, `\`) || !isASCII(event) ||
		strings.Contains(text, fuzzVM.Name) && strings.Contains(text, strings.ToLower(kind))
}

// FuzzWatcher sends a watcher scripts of answers and looks at its decisions on the way.
// For any answers, nothing crashes, nothing drains without a document that shows why, and
// the eviction that a valid document shows finally is seen at once.
func FuzzWatcher(f *testing.F) {
	for _, script := range []string{
		"", "o-", "o-\n5\n9\nc\nh\n4\nr\no-",
		"s-\no-\nh\nh\nh\nh", "o<html>\no{}\nonull\no{\"Events\":null}",
		"o" + fmt.Sprintf(ourPreempt, 2) + "\no-",
		`o{"Events":[{"EventType":"Preempt","Resources":["qvmq_70","qvmq"]}]}`,
		`s{"Events":[{"EventType":"Reboot","EventStatus":"Started","Resources":"QVMQ_7"}]}` + "\no-\no-",
		`5{"Events":[{"EventType":"Preempt","Resources":["qvmq_7"]}]}`,
		`o{"error":"qvmq_7 preempt events"}`,
	} {
		f.Add([]byte(script))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) { watchScript(t, script) })
	})
}

// seenWithin bounds the time from the first poll after the script, whose answer
// shows the eviction, to the decision.
const seenWithin = time.Second

// sawDrain is a decision to drain and when it was made.
type sawDrain struct {
	at time.Time
	Decision
}

func watchScript(t *testing.T, script []byte) {
	s := newScripted(script)
	c, err := NewClient("http://127.0.0.1", WithTransport(s), only(generalEvents))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var drains []sawDrain
	var last Decision
	done := make(chan struct{})
	go func() {
		defer close(done)
		NewWatcher(c).Run(ctx, func(o Observation) {
			if !o.Changed {
				return
			}
			checkDocument(t, o.Document)
			last = Decide(o.Document, fuzzVM, o.Document.Now(o.At))
			if last.Action == Drain {
				if !s.shows(last) {
					t.Errorf("drain for %+v, which no answer shows: %q", last.Event, s.served)
				}
				drains = append(drains, sawDrain{o.At, last})
			}
		})
	}()
	for range 5 * maxLines { // seconds: a poll is sent every two at least, for any failure
		time.Sleep(time.Second)
		if s.overFor(seenWithin) {
			break
		}
	}
	cancel()
	<-done
	if last.Action != Drain || last.Event.ID != "E" {
		t.Fatalf("last decision = %+v, want to drain for the event that the end of the script shows", last)
	}
	if took := drains[len(drains)-1].at.Sub(s.end); took > seenWithin && !drainedBefore(drains, s.end) {
		t.Errorf("the eviction was seen %s after it was shown first, want at most %s", took, seenWithin)
	}
}

// drainedBefore reports whether a drain was called for before the given time, so
// that the last observation may be about something else.
func drainedBefore(drains []sawDrain, end time.Time) bool { return drains[0].at.Before(end) }

// FuzzInstance looks for answers about the VM that crash the parser, or that
// pass without a name.
func FuzzInstance(f *testing.F) {
	f.Add([]byte(`{"name":"a","vmId":"1","vmScaleSetName":"","resourceId":"/r","tagsList":[{"name":"k","value":"v"}],"userData":"aGk="}`))
	f.Add([]byte(`{"error":"not yet"}`))
	f.Add([]byte(`{"name":7,"tagsList":{"k":1},"zone":null}`))
	f.Add([]byte("\ufeff{\"NAME\":\" a \"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		instance, err := parseInstance(body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || instance.Name != "" {
				t.Fatalf("parseInstance = %+v, %v, want nothing and ErrMalformed", instance, err)
			}
			if raw := oneLine(err.Error()); raw != err.Error() {
				t.Errorf("error %q is not fit for a log", err)
			}
			return
		}
		if instance.Name == "" || instance.Name != strings.TrimSpace(instance.Name) {
			t.Errorf("name = %q, want one without surrounding space", instance.Name)
		}
		if !json.Valid(trimBOM(body)) {
			t.Errorf("%q is no JSON and was read as %s", body, instance)
		}
		if raw, ok := bytes.CutPrefix(body, []byte("\ufeff")); ok {
			if again, err := parseInstance(raw); err != nil || again.Identity != instance.Identity {
				t.Errorf("without its byte order mark: %+v, %v, want the same", again, err)
			}
		}
	})
}
