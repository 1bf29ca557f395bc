package hedge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// service is a transport whose answers take their time; 0 is for ever.
type service struct {
	takes  []time.Duration // by try
	tries  int
	closed int // how often idle connections were closed
}

func (s *service) Do(r *http.Request) (*http.Response, error) {
	takes := s.takes[min(s.tries, len(s.takes)-1)]
	s.tries++
	var answer <-chan time.Time
	if takes > 0 {
		answer = time.After(takes)
	}
	select {
	case <-answer:
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader([]byte("body"))), Request: r}, nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// call makes one call with a body of that size, and returns its error.
func (s *service) call(ctx context.Context, t *testing.T, size int) error {
	t.Helper()
	pipeline := runtime.NewPipeline("test", "v0", runtime.PipelineOptions{
		PerRetry: []policy.Policy{Policy{CloseIdle: func() { s.closed++ }}},
	}, &policy.ClientOptions{Transport: s, Retry: policy.RetryOptions{MaxRetries: 3, RetryDelay: time.Millisecond,
		MaxRetryDelay: time.Millisecond}})
	req, err := runtime.NewRequest(ctx, http.MethodPut, "http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	if err := req.SetBody(streaming.NopCloser(bytes.NewReader(make([]byte, size))), "text/plain"); err != nil {
		t.Fatal(err)
	}
	_, err = pipeline.Do(req)
	return err
}

// TestTries: the cost of one call.
func TestTries(t *testing.T) {
	const quick = 10 * time.Millisecond
	for _, row := range []struct {
		name    string
		takes   []time.Duration
		size    int
		shortAt time.Duration // after the call began; time is never short if negative
		want    time.Duration // until the answer, or the end of the minute that the call has
		tries   int
		closed  int
	}{
		{"answered", []time.Duration{quick}, 10, 0, quick, 1, 0},
		{"swallowed", []time.Duration{0, quick}, 10, 0, limit + quick, 2, 1},
		{"swallowed before time is short", []time.Duration{0, quick}, 10, 3 * time.Second, 3*time.Second + limit + quick, 2, 1},
		{"slower than usual", []time.Duration{3 * time.Second}, 10, 0, limit + 3*time.Second, 2, 1},
		{"swallowed while time is not short", []time.Duration{0, quick}, 10, -1, time.Minute, 1, 1},
		{"slow while time is not short", []time.Duration{20 * time.Second}, 10, -1, 20 * time.Second, 1, 0},
		{"a large body", []time.Duration{20 * time.Second}, smallBody + 1, 0, 20 * time.Second, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				short, begin := context.WithCancel(t.Context())
				defer begin()
				if row.shortAt >= 0 {
					defer time.AfterFunc(row.shortAt, begin).Stop()
				}
				if row.shortAt == 0 {
					begin()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s := &service{takes: row.takes}
				asked := time.Now()
				err := s.call(NewTries(short).In(ctx), t, row.size)
				// The SDK waits a millisecond or less before each retry.
				took := time.Since(asked)
				if took < row.want || took > row.want+3*time.Millisecond {
					t.Errorf("took %s, want %s", took, row.want)
				}
				if (err != nil) != (row.want == time.Minute) {
					t.Errorf("error = %v", err)
				}
				if s.tries != row.tries || s.closed != row.closed {
					t.Errorf("%d tries, idle connections closed %d times, want %d and %d", s.tries, s.closed, row.tries, row.closed)
				}
			})
		})
	}
}

// stream is a response body that takes its time to be read; 0 is for ever.
type stream struct {
	ctx   context.Context //nolint:containedctx // as the body of package net/http has it
	takes time.Duration
}

func (s stream) Read([]byte) (int, error) {
	var over <-chan time.Time
	if s.takes > 0 {
		over = time.After(s.takes)
	}
	select {
	case <-over:
		return 0, io.EOF
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
}

func (stream) Close() error { return nil }

// TestTryTimeout: the timeout of a try includes the body of its response, and cuts off no
// other call. While time is short a body is not cut off earlier than that.
func TestTryTimeout(t *testing.T) {
	const timeout, never = 30 * time.Second, 0
	for _, tt := range []struct {
		name           string
		limited, short bool
		answer, body   time.Duration
		err            bool
		took           time.Duration
		closesIdle     int
	}{
		{"answered", false, false, time.Second, time.Second, false, 2 * time.Second, 0},
		{"no answer", false, false, never, never, true, timeout, 1},
		{"no body", false, false, time.Second, never, true, timeout, 0},
		{"answered, with tries", true, false, time.Second, time.Second, false, 2 * time.Second, 0},
		{"no answer, with tries", true, false, never, never, true, timeout, 1},
		{"no body, with tries", true, false, time.Second, never, true, timeout, 0},
		{"a slow body in a drain", true, true, limit / 2, 10 * time.Second, false, limit/2 + 10*time.Second, 0},
		{"no body in a drain", true, true, limit / 2, never, true, timeout, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				short, begin := context.WithCancel(t.Context())
				defer begin()
				if tt.short {
					begin()
				}
				tries, ctx := NewTries(short), t.Context()
				if tt.limited {
					ctx = tries.In(ctx)
				}
				closed, tried := 0, (*http.Request)(nil)
				do := transport(func(r *http.Request) (*http.Response, error) {
					tried = r
					s := stream{r.Context(), tt.answer}
					if _, err := s.Read(nil); !errors.Is(err, io.EOF) {
						return nil, err
					}
					return &http.Response{StatusCode: http.StatusOK, Body: stream{r.Context(), tt.body}, Request: r}, nil
				})
				pipeline := runtime.NewPipeline("test", "v0", runtime.PipelineOptions{
					PerRetry: []policy.Policy{Policy{TryTimeout: timeout, CloseIdle: func() { closed++ }}},
				}, &policy.ClientOptions{Transport: do, Retry: policy.RetryOptions{MaxRetries: -1}})
				req, err := runtime.NewRequest(ctx, http.MethodGet, "http://localhost/")
				if err != nil {
					t.Fatal(err)
				}
				runtime.SkipBodyDownload(req)
				begun := time.Now()
				resp, err := pipeline.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(begun); (err != nil) != tt.err || took != tt.took {
					t.Errorf("error %v after %s, want %t after %s", err, took, tt.err, tt.took)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error = %v, want a timeout", err)
				}
				if closed != tt.closesIdle {
					t.Errorf("idle connections were closed %d times, want %d", closed, tt.closesIdle)
				}
				if tried.Context().Err() == nil {
					t.Error("the context of the try has not ended: the caller's holds it")
				}
			})
		})
	}
}

// transport is a function that answers requests.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }
