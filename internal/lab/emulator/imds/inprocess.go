package imds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errCut is the error of a connection that was closed without an answer. It wraps
// the error that a client gets over a socket.
var errCut = fmt.Errorf("metadata emulator closed the connection: %w", io.ErrUnexpectedEOF)

// inProcess is a transport that calls a handler in the goroutine of the caller.
// The handler watches the request's context, so a cancelled request returns at
// once.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	served := req.Clone(req.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	defer served.Body.Close()
	w := &recorder{header: http.Header{}}
	if cut := t.call(w, served); cut {
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, errCut
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		Body:          io.NopCloser(&w.body),
		ContentLength: int64(w.body.Len()),
		Request:       req,
	}, nil
}

// call runs the handler, and reports whether it aborted the connection.
func (t inProcess) call(w http.ResponseWriter, r *http.Request) (cut bool) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case isAbort(p):
			cut = true
		default:
			panic(p)
		}
	}()
	t.handler.ServeHTTP(w, r)
	return false
}

func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// recorder keeps an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
