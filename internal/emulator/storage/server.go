package storage

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
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
}

// Server is one storage account. It is safe for concurrent use.
type Server struct {
	account string
	key     string
	latency time.Duration
	auth    authenticator
	blobs   *blobService
	queues  *queueService
	up      pipe // bodies of requests
	down    pipe // bodies of replies
	limits  limiter
	calls   callLog
	doors   listeners
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
		auth:    authenticator{sharedKeyScheme: sharedKey{account: o.Account, secret: secret}},
		blobs:   newBlobService(),
		queues:  newQueueService(),
		calls:   callLog{counts: make(map[string]int64)},
	}
	s.SetBandwidth(o.Bandwidth)
	s.SetLimits(o.Limits)
	return s
}

// Blob returns the handler of the blob service, path style:
// /<account>/<container>/<blob>.
func (s *Server) Blob() http.Handler { return s.handler(s.blobs) }

// Queue returns the handler of the queue service, path style:
// /<account>/<queue>/messages/<message id>.
func (s *Server) Queue() http.Handler { return s.handler(s.queues) }

// Transport returns the in-process door to both services, for
// azcore.ClientOptions.Transport together with ConnectionString. It opens no
// socket and starts no goroutine. A call, and a read of its body, returns as
// soon as its context ends, with no effect if that was before the effect; a cut
// connection is the error that a reset TCP connection gives.
func (s *Server) Transport() policy.Transporter { return transport{server: s} }

// ConnectionString returns the account's connection string for clients that
// use Transport.
func (s *Server) ConnectionString() string {
	return s.connectionString("http://"+blobHost, "http://"+queueHost)
}

func (s *Server) connectionString(blobURL, queueURL string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%[1]s;AccountKey=%[2]s;BlobEndpoint=%[3]s/%[1]s;QueueEndpoint=%[4]s/%[1]s;",
		s.account, s.key, blobURL, queueURL)
}
