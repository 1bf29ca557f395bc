package storage

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/blobs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/link"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage/queues"
	"github.com/spotworker/spotworker/internal/lab/emulator/token"
)

// The account that Microsoft's emulators have in common. The key is public
// knowledge and protects nothing.
const (
	DefaultAccount = "devstoreaccount1"
	DefaultKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Hosts that Transport serves. No such names exist, so a client that is given
// ConnectionString without Transport fails instead of reaching somebody.
const (
	blobHost  = "blob.emulator"
	queueHost = "queue.emulator"
)

// Options describe an account. The zero value is the well-known development
// account without latency.
type Options struct {
	// Account is the account's name. Default: DefaultAccount.
	Account string
	// Key is the account's shared key in base64. Default: DefaultKey.
	Key string
	// Latency is added to every call, half of it before the effect and half
	// between the effect and the reply. Default: none.
	Latency time.Duration
	// Bandwidth limits the bodies of all calls together. Default: no limit.
	// SetBandwidth changes it.
	Bandwidth Bandwidth
	// Limits are the rates over which calls are refused. Default: nil, none.
	// SetLimits changes them.
	Limits *Limits
	// Tokens is the issuer whose bearer tokens are accepted beside the
	// account's key, over TLS. Default: nil, none are.
	Tokens *token.Issuer
	// PageSeed is the seed of the pages of listings: some are shorter than asked for or
	// empty, as the service's may be. SetFullPages ends that. Default: 0.
	PageSeed uint64
}

// Server is one storage account. It is safe for concurrent use.
type Server struct {
	account   string
	key       string
	latency   time.Duration
	auth      authenticator
	pages     atomic.Pointer[protocol.Pages] // nil for full pages
	blobs     *blobs.Service
	queues    *queues.Service
	up        link.Pipe // bodies of requests
	down      link.Pipe // bodies of replies
	limits    limiter
	calls     callLog
	listeners listeners
}

// New returns an empty account. It panics if the key is not base64, which is a
// mistake in the calling code.
func New(o Options) *Server {
	if o.Account == "" {
		o.Account = DefaultAccount
	}
	if o.Key == "" {
		o.Key = DefaultKey
	}
	secret, err := base64.StdEncoding.DecodeString(o.Key)
	if err != nil {
		panic(fmt.Sprintf("storage: account key is not base64: %v", err))
	}
	s := &Server{
		account: o.Account,
		key:     o.Key,
		latency: o.Latency,
		auth:    newAuthenticator(o.Account, secret, o.Tokens),
		blobs:   blobs.New(),
		queues:  queues.New(),
		calls:   callLog{counts: make(map[string]int64)},
	}
	s.pages.Store(protocol.NewPages(o.PageSeed))
	s.SetBandwidth(o.Bandwidth)
	s.SetLimits(o.Limits)
	return s
}

// LimitBlobPages gives lists of blobs pages of at most n entries, so that a few blobs fill
// several; 0 stands for the 5,000 of the protocol.
func (s *Server) LimitBlobPages(n int) { s.blobs.LimitPages(n) }

// SetFullPages makes every page of a listing as long as asked for, from now on: for callers
// that count calls.
func (s *Server) SetFullPages() { s.pages.Store(nil) }

// Blob returns the handler of the blob service, path style:
// /<account>/<container>/<blob>.
func (s *Server) Blob() http.Handler { return s.handler(s.blobs) }

// Queue returns the handler of the queue service, path style:
// /<account>/<queue>/messages/<message id>.
func (s *Server) Queue() http.Handler { return s.handler(s.queues) }

// Transport returns an in-process transport to both services, for
// azcore.ClientOptions.Transport together with ConnectionString. It opens no
// socket and starts no goroutine. A call, and a read of its body, returns as
// soon as its context ends, with no effect if that was before the effect; a cut
// connection is the error that a reset TCP connection gives.
func (s *Server) Transport() policy.Transporter { return transport{server: s} }

// ConnectionString returns the account's connection string for clients that
// use Transport.
func (s *Server) ConnectionString() string {
	return s.ConnectionStringAt(s.endpoints("http", blobHost, queueHost))
}

// Endpoints returns the account's addresses for clients that use Transport and
// tokens: they are https, in name only.
func (s *Server) Endpoints() Endpoints { return s.endpoints("https", blobHost, queueHost) }

// Endpoints are the addresses of an account's services, which clients with
// tokens are given in place of a connection string. They end with the account's
// name, without a slash.
type Endpoints struct {
	Blob, Queue string
}

func (s *Server) endpoints(scheme, blob, queue string) Endpoints {
	return Endpoints{
		Blob:  scheme + "://" + blob + "/" + s.account,
		Queue: scheme + "://" + queue + "/" + s.account,
	}
}

// ConnectionStringAt returns the connection string of the account at other addresses,
// such as the addresses of ListenTLS.
func (s *Server) ConnectionStringAt(e Endpoints) string {
	scheme, _, _ := strings.Cut(e.Blob, ":")
	return fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;QueueEndpoint=%s;",
		scheme, s.account, s.key, e.Blob, e.Queue)
}

// service is one of the account's two services.
type service interface {
	Kind() protocol.Service
	// route names the operation that a request asks for.
	Route(r *protocol.Request) (protocol.Operation, error)
}

// errCut stands for a connection that ends without a reply.
var errCut = errors.New("storage: connection cut")

// serve takes a request through admission, fault, effect and reply. It returns
// no reply, but errCut or the cause of the context's end, where a real
// connection would carry none.
func (s *Server) serve(svc service, raw *http.Request) (*protocol.Reply, error) {
	ctx := raw.Context()
	r, op, err := s.admit(svc, raw)
	call := newCall(r, op.Name)
	fault := s.calls.begin(&call)
	if err == nil {
		err = r.ReadBody(op.MaxBody, s.up.Flow(fault.Bandwidth.Up))
	}
	var refused *protocol.Error
	if err != nil && !errors.As(err, &refused) {
		s.calls.end(call, nil)
		return nil, err // the body did not arrive: the client has gone
	}
	if !link.Wait(ctx, s.latency/2+fault.Before) {
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
		rep.Spoil()
	}
	if fault.RefuseReply != nil {
		if e := fault.RefuseReply(resultOf(call, rep)); e != nil {
			rep = s.refusal(r, e)
		}
	}
	if !link.Wait(ctx, s.latency-s.latency/2+fault.After) {
		return nil, context.Cause(ctx)
	}
	if fault.DropReply {
		return nil, errCut
	}
	rep.Cut = fault.CutBody
	rep.Flow = s.down.Flow(fault.Bandwidth.Down)
	return rep, nil
}

// admit routes and authenticates a request. A refusal is an *Error; the request
// and the operation's name are good all the same.
func (s *Server) admit(svc service, raw *http.Request) (*protocol.Request, protocol.Operation, error) {
	unknown := protocol.Operation{Name: protocol.OpUnknown}
	r, err := protocol.NewRequest(svc.Kind(), raw)
	if err != nil {
		return r, unknown, err
	}
	r.Pages = s.pages.Load()
	op, routeErr := svc.Route(r)
	if err := s.auth.authenticate(r); err != nil {
		return r, op, err
	}
	if routeErr != nil {
		return r, op, routeErr
	}
	if r.Account != s.account {
		return r, op, protocol.ErrInvalidURI.Because("this emulator has the account %q only", s.account)
	}
	return r, op, nil
}

// answer runs the operation, unless it is refused or over a limit, and
// completes the reply.
func (s *Server) answer(r *protocol.Request, op protocol.Operation, refused *protocol.Error) *protocol.Reply {
	r.Now = time.Now()
	id := protocol.NewRequestID()
	var rep *protocol.Reply
	if refused == nil {
		refused = s.limits.admit(r)
	}
	if refused == nil {
		var err error
		if rep, err = op.Run(r); err != nil && !errors.As(err, &refused) {
			refused = protocol.ErrInternal.Because("%v", err)
		}
	}
	if refused != nil {
		rep = protocol.ErrorReply(refused, id, r.Now)
	}
	s.limits.charge(r, rep)
	rep.Stamp(r, id)
	return rep
}

// refusal is the reply to a refused request.
func (s *Server) refusal(r *protocol.Request, e *protocol.Error) *protocol.Reply {
	id := protocol.NewRequestID()
	rep := protocol.ErrorReply(e, id, r.Now)
	rep.Stamp(r, id)
	return rep
}

// handler serves svc over HTTP. Where there is no reply, or no whole one, it
// cuts the connection.
func (s *Server) handler(svc service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, raw *http.Request) {
		rep, err := s.serve(svc, raw)
		if err == nil {
			err = rep.Send(w, raw)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
}
