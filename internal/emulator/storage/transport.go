package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// transport is the in-process door. It does to a request and a reply what
// net/http's client and server would: header keys become canonical, values are
// trimmed, and those that cannot travel are refused.
type transport struct {
	server *Server
}

// Do implements policy.Transporter.
func (t transport) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	rep, err := t.roundTrip(req)
	if err != nil {
		if errors.Is(err, errCut) {
			err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		}
		method := req.Method[:1] + strings.ToLower(req.Method[1:]) // as http.Client spells it
		return nil, &url.Error{Op: method, URL: req.URL.Redacted(), Err: err}
	}
	return rep.response(req), nil
}

func (t transport) roundTrip(req *http.Request) (*reply, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	header, err := wireHeader(req.Header)
	if err != nil {
		return nil, err
	}
	raw := *req
	raw.Header = header
	switch req.URL.Host {
	case blobHost:
		return t.server.serve(t.server.blobs, &raw)
	case queueHost:
		return t.server.serve(t.server.queues, &raw)
	}
	return nil, &net.DNSError{Err: "no such host in the emulator", Name: req.URL.Host, IsNotFound: true}
}

// wireHeader returns the header as a server receives it.
func wireHeader(h http.Header) (http.Header, error) {
	out := make(http.Header, len(h))
	for key, values := range h {
		canonical := textproto.CanonicalMIMEHeaderKey(key)
		for _, v := range values {
			if strings.ContainsFunc(v, isControl) {
				return nil, fmt.Errorf("net/http: invalid header field value for %q", key)
			}
			out[canonical] = append(out[canonical], textproto.TrimString(v))
		}
	}
	return out, nil
}

// isControl reports the characters that no header can carry.
func isControl(c rune) bool { return (c < ' ' && c != '\t') || c == 0x7f }

// response is the reply as http.Client returns it.
func (p *reply) response(req *http.Request) *http.Response {
	res := &http.Response{
		Status:     fmt.Sprintf("%d %s", p.status, http.StatusText(p.status)),
		StatusCode: p.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        make(http.Header, len(p.header)),
		ContentLength: p.statedLength(),
		Request:       req,
		Body:          http.NoBody,
	}
	for key, values := range p.header {
		res.Header[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	if req.Method != http.MethodHead && p.body != nil {
		res.Body = &liveBody{ctx: req.Context(), reply: p}
	}
	return res
}

// liveBody is a reply's body as it comes from a socket: at the pace of its
// flow, and no more of it once the request's context has ended.
type liveBody struct {
	ctx   context.Context //nolint:containedctx // lives as long as the request
	reply *reply
}

func (b *liveBody) Read(p []byte) (int, error) {
	data := b.reply.body.next()
	n, ok := b.reply.flow.pass(b.ctx, min(len(p), len(data)))
	switch {
	case !ok:
		return 0, context.Cause(b.ctx)
	case data == nil:
		return 0, io.EOF
	}
	copy(p, data[:n])
	b.reply.body.advance(n)
	return n, nil
}

func (b *liveBody) Close() error { return nil }
