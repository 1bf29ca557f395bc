package handlers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/cost"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/job"
)

// doer is a transport.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// zeros is a blob of nothing but zero bytes, made while it is read.
type zeros struct {
	size  int64
	etag  string
	asked func(*http.Request)                  // of every request
	body  func(n int64, r io.Reader) io.Reader // of the n-th range, from 1

	ranges int64
}

func (z *zeros) Do(r *http.Request) (*http.Response, error) {
	r.Header = canonical(r.Header)
	if z.asked != nil {
		z.asked(r)
	}
	reply := &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{"Etag": {z.etag}},
		Body: http.NoBody, ContentLength: z.size, Request: r,
	}
	if r.Method == http.MethodGet {
		var first, last int64
		if _, err := fmt.Sscanf(r.Header.Get("x-ms-range"), "bytes=%d-%d", &first, &last); err != nil {
			return nil, fmt.Errorf("range %q: %w", r.Header.Get("x-ms-range"), err)
		}
		z.ranges++
		reply.StatusCode, reply.Status = http.StatusPartialContent, "206 Partial Content"
		reply.ContentLength = last - first + 1
		body := io.LimitReader(zero{}, reply.ContentLength)
		if z.body != nil {
			body = z.body(z.ranges, body)
		}
		reply.Body = io.NopCloser(body)
	}
	reply.Header.Set("Content-Length", fmt.Sprint(reply.ContentLength))
	return reply, nil
}

// canonical spells the keys as a server receives them; the SDK does not.
func canonical(h http.Header) http.Header {
	out := http.Header{}
	for key, values := range h {
		out[http.CanonicalHeaderKey(key)] = values
	}
	return out
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (z *zeros) digest(t *testing.T) *Digest {
	t.Helper()
	return NewDigest(clientOf(t, z), []string{"data"}, discard())
}

// TestDigestMemoryIsFlat hashes 3 GiB. The expected digest is the output of
// head -c 3221225472 /dev/zero | sha256sum.
func TestDigestMemoryIsFlat(t *testing.T) {
	proof.Only(t, "it reads gigabytes")
	const size, limit = 3 << 30, 16 << 20
	z := &zeros{size: size, etag: `"1"`}
	runtime.GC()
	base, peak := cost.Heap(), uint64(0)
	z.asked = func(*http.Request) { peak = max(peak, cost.Heap()) }
	began := time.Now()

	result, err := z.digest(t).Run(t.Context(), digestJob("blob", nil))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(result), sumOf3GiBOfZeros) {
		t.Errorf("result = %s, want digest %s", result, sumOf3GiBOfZeros)
	}
	growth := int64(peak) - int64(base)
	t.Logf("3 GiB in %v, heap %d KiB before, at most %d KiB more during the run", time.Since(began).Round(time.Millisecond), base>>10,
		growth>>10)
	if growth > limit {
		t.Errorf("the heap grew by %d bytes, want at most %d", growth, limit)
	}
}

const sumOf3GiBOfZeros = "305b66a59d15b252092fbda9d09711230c429f351897cbd430e7b55a35fd3b97"

// TestDigestResumesACutBody: the time-out of one try, or a connection
// lost, in the middle of a body.
func TestDigestResumesACutBody(t *testing.T) {
	for name, cut := range map[string]error{"time-out of the try": context.DeadlineExceeded, "connection lost": io.ErrUnexpectedEOF} {
		z := &zeros{size: 2 * rangeSize, etag: `"1"`}
		z.body = func(n int64, r io.Reader) io.Reader {
			if n != 1 {
				return r
			}
			return io.MultiReader(io.LimitReader(r, 1<<20), readFunc(func([]byte) (int, error) { return 0, cut }))
		}
		var asked []string
		z.asked = func(r *http.Request) {
			if r.Method == http.MethodGet {
				asked = append(asked, r.Header.Get("x-ms-range")+" "+r.Header.Get("If-Match"))
			}
		}
		result, err := z.digest(t).Run(t.Context(), digestJob("blob", nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantDigest(t, result, make([]byte, 2*rangeSize))
		want := []string{`bytes=0-4194303 "1"`, `bytes=1048576-4194303 "1"`, `bytes=4194304-8388607 "1"`}
		if fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("%s: asked for %q, want %q", name, asked, want)
		}
	}
}

func TestDigestOfAVersion(t *testing.T) {
	const version = "2026-01-31T09:30:00.1234567Z"
	z := &zeros{size: rangeSize + 1, etag: `"1"`}
	requests := 0
	z.asked = func(r *http.Request) {
		requests++
		if got := r.URL.Query().Get("versionid"); got != version || r.URL.Path != "/data/a b/c" {
			t.Errorf("%s %s: version %q of %q, want %q of a b/c", r.Method, r.URL, got, r.URL.Path, version)
		}
	}
	j := job.New(job.Spec{Payload: []byte(`{"container":"data","blob":"a b/c","version":"` + version + `"}`)}, nil)
	result, err := z.digest(t).Run(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	wantDigest(t, result, make([]byte, rangeSize+1))
	if requests != 3 || !strings.Contains(string(result), `"version":"`+version+`"`) {
		t.Errorf("%d requests, result %s; want 3 and the version", requests, result)
	}
}

// TestDigestRefusesAReplyThatIgnoresTheRange: a proxy that answers a range with
// the whole blob would make a wrong digest.
func TestDigestRefusesAReplyThatIgnoresTheRange(t *testing.T) {
	z := &zeros{size: rangeSize + 1, etag: `"1"`}
	whole := doFunc(func(r *http.Request) (*http.Response, error) {
		reply, err := z.Do(r)
		if err == nil {
			reply.ContentLength = z.size
			reply.Header.Set("Content-Length", fmt.Sprint(z.size))
		}
		return reply, err
	})
	digest := NewDigest(clientOf(t, whole), []string{"data"}, discard())
	_, err := digest.Run(t.Context(), digestJob("blob", nil))
	if err == nil || job.IsPermanent(err) || !strings.Contains(err.Error(), "is not of that length") {
		t.Errorf("digest = %v, want an ordinary failure over the reply's length", err)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

type doFunc func(*http.Request) (*http.Response, error)

func (f doFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }
