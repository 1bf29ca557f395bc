package cost

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Sink is a storage service without content, so that the measured memory is the client's:
// it counts received bytes, remembers the ids of blocks, and serves a generated state.
type Sink struct {
	// Generate reads the state that is served: count bytes from offset on.
	Generate func(offset, count int64) io.Reader

	// Latency is how long each call takes, so that several are in flight.
	Latency time.Duration

	mu    sync.Mutex
	etag  int
	calls int
	sent  int64
	top   uint64 // of the heap
	has   map[string]bool
}

// Measure runs a step and returns its cost.
func (s *Sink) Measure(do func() error) Measured {
	runtime.GC()
	before, began := Heap(), time.Now()
	s.mu.Lock()
	s.calls, s.sent, s.top = 0, 0, 0
	s.mu.Unlock()
	err := do()
	s.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Measured{Err: err, Calls: s.calls, Sent: s.sent, Heap: max(s.top, before) - before, Took: time.Since(began)}
}

// Look samples the heap's size. Each request does that too.
func (s *Sink) Look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top = max(s.top, Heap())
}

// Do implements policy.Transporter.
func (s *Sink) Do(r *http.Request) (*http.Response, error) {
	var list bytes.Buffer
	n, err := read(r, &list)
	if err != nil {
		return nil, err
	}
	time.Sleep(s.Latency)
	s.Look()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.sent += n
	switch r.Method {
	case http.MethodGet:
		return s.get(r)
	case http.MethodPut:
		return s.put(r, list.Bytes())
	default:
		return nil, errors.New("not expected here: " + r.Method)
	}
}

// read reads a request's body, keeps only a list of blocks, and returns how many
// bytes it had.
func read(r *http.Request, list io.Writer) (n int64, err error) {
	if r.Body != nil {
		to := io.Discard
		if r.URL.Query().Get("comp") == "blocklist" {
			to = list
		}
		n, err = io.Copy(to, r.Body)
	}
	for key, values := range r.Header {
		n += int64(len(key) + len(strings.Join(values, ", ")))
	}
	return n, err
}

func (s *Sink) get(r *http.Request) (*http.Response, error) {
	var from, to int64
	if _, err := fmt.Sscanf(rangeOf(r.Header), "bytes=%d-%d", &from, &to); err != nil {
		return nil, fmt.Errorf("x-ms-range: %w", err)
	}
	res := s.response(r, http.StatusPartialContent)
	res.Header.Set("Content-Length", fmt.Sprint(to-from+1))
	res.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, to))
	res.Body = io.NopCloser(s.Generate(from, to-from+1))
	return res, nil
}

// rangeOf returns x-ms-range, whose name the SDK writes in lower case.
func rangeOf(header http.Header) string {
	for key, values := range header {
		if strings.EqualFold(key, "x-ms-range") {
			return strings.Join(values, "")
		}
	}
	return ""
}

func (s *Sink) put(r *http.Request, body []byte) (*http.Response, error) {
	switch r.URL.Query().Get("comp") {
	case "block":
		if s.has == nil {
			s.has = map[string]bool{}
		}
		s.has[r.URL.Query().Get("blockid")] = true
		return s.response(r, http.StatusCreated), nil
	case "blocklist":
		if err := s.checkList(body); err != nil {
			return nil, err
		}
	}
	s.etag++
	return s.response(r, http.StatusCreated), nil
}

// checkList demands that every block in the list was sent.
func (s *Sink) checkList(body []byte) error {
	var list struct{ Latest []string }
	if err := xml.Unmarshal(body, &list); err != nil {
		return err
	}
	for _, id := range list.Latest {
		if !s.has[id] {
			return errors.New("a block was named that never came")
		}
	}
	return nil
}

func (s *Sink) response(r *http.Request, status int) *http.Response {
	now := time.Now().UTC().Format(http.TimeFormat)
	header := http.Header{
		"X-Ms-Request-Id": {"1"}, "Etag": {fmt.Sprintf(`"%d"`, s.etag)}, "Date": {now}, "Last-Modified": {now},
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: r}
}
