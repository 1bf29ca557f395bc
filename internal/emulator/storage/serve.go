package storage

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// service is one of the account's two services.
type service interface {
	kind() Service
	// route names the operation that a request asks for.
	route(r *request) (operation, error)
}

// operation is a routed request, ready to run.
type operation struct {
	name    string
	maxBody int64 // bytes
	run     func(r *request) (*reply, error)
}

// errCut stands for a connection that ends without a reply.
var errCut = errors.New("storage: connection cut")

// serve takes a request through admission, fault, effect and reply. It returns
// no reply, but errCut or the cause of the context's end, where a real
// connection would carry none.
func (s *Server) serve(svc service, raw *http.Request) (*reply, error) {
	ctx := raw.Context()
	r, op, err := s.admit(svc, raw)
	call := newCall(r, op.name)
	fault := s.calls.begin(&call)
	if err == nil {
		err = r.readBody(op.maxBody, s.up.flow(fault.Bandwidth.Up))
	}
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		s.calls.end(call, nil)
		return nil, err // the body did not arrive: the client has gone
	}
	if !wait(ctx, s.latency/2+fault.Before) {
		s.calls.end(call, nil)
		return nil, context.Cause(ctx)
	}
	if fault.DropRequest {
		s.calls.end(call, nil)
		return nil, errCut
	}
	if fault.Refuse != nil {
		refused = fault.Refuse
	}
	rep := s.answer(r, op, refused)
	s.calls.end(call, rep)
	if fault.SpoilReply != nil && fault.SpoilReply(resultOf(call, rep)) {
		rep.spoil()
	}
	if !wait(ctx, s.latency-s.latency/2+fault.After) {
		return nil, context.Cause(ctx)
	}
	if fault.DropReply {
		return nil, errCut
	}
	rep.flow = s.down.flow(fault.Bandwidth.Down)
	return rep, nil
}

// admit routes and authenticates a request. A refusal is an *Error; the request
// and the operation's name are good all the same.
func (s *Server) admit(svc service, raw *http.Request) (*request, operation, error) {
	unknown := operation{name: OpUnknown}
	r, err := newRequest(svc.kind(), raw)
	if err != nil {
		return r, unknown, err
	}
	op, routeErr := svc.route(r)
	if err := s.auth.authenticate(r); err != nil {
		return r, op, err
	}
	if routeErr != nil {
		return r, op, routeErr
	}
	if r.account != s.account {
		return r, op, errInvalidURI.because("this emulator has the account %q only", s.account)
	}
	return r, op, nil
}

// answer runs the operation, unless it is refused or over a limit, and
// completes the reply.
func (s *Server) answer(r *request, op operation, refused *Error) *reply {
	r.now = time.Now()
	id := newRequestID()
	var rep *reply
	if refused == nil {
		refused = s.limits.admit(r)
	}
	if refused == nil {
		var err error
		if rep, err = op.run(r); err != nil && !errors.As(err, &refused) {
			refused = errInternal.because("%v", err)
		}
	}
	if refused != nil {
		rep = errorReply(refused, id, r.now)
	}
	s.limits.charge(r, rep)
	rep.stamp(r, id)
	return rep
}

// wait sleeps for d. It returns false as soon as ctx ends, also if it had
// ended before.
func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// handler serves svc over HTTP. Where there is no reply, or no whole one, it
// cuts the connection.
func (s *Server) handler(svc service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, raw *http.Request) {
		rep, err := s.serve(svc, raw)
		if err == nil {
			err = rep.send(w, raw)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
}
