package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.opentelemetry.io/otel/trace"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
)

// Options say which deployment to use, and how. Required is one of Account and
// ConnectionString.
type Options struct {
	// Account is the name of the storage account.
	Account string

	// Credential signs in to the account: any credential of package azidentity, for
	// instance. Default: the managed identity ClientID, or without one the developer's
	// own sign-in (az login or azd auth login).
	Credential azcore.TokenCredential

	// ClientID is the client id of a managed identity or, where AZURE_FEDERATED_TOKEN_FILE is
	// set, of a workload identity. Not used with Credential.
	ClientID string

	// ConnectionString has the account's endpoints and key, for emulators and accounts
	// that allow keys. It replaces the fields above.
	ConnectionString string

	// BlobEndpoint and QueueEndpoint are the account's addresses, where they are not
	// https://ACCOUNT.blob.core.windows.net and https://ACCOUNT.queue.core.windows.net.
	BlobEndpoint, QueueEndpoint string

	// Prefix is the start of the names of the deployment's queues and containers.
	// Default: "spotworker".
	Prefix string

	// Queue is the queue of jobs. Default: Prefix and "-jobs".
	Queue string

	// Shards is over how many queues jobs are put, for a deployment that has several
	// (spotctl shards) and an identity that may not read how many. Default: as many as the
	// deployment says, or the first alone where that may not be read. Only programs that
	// put jobs should set it.
	Shards int

	// Parallel is how many calls run at once when there are many jobs to put or to wait
	// for. Default: 16; to put, as many as the storage gains from.
	Parallel int

	// UnknownKind, if set, is called by Put when no live worker has the job's kind, as a
	// misspelt one: with an [*UnknownKindError]. The job is put all the same. It costs one
	// listing of the workers' heartbeats for each kind in ten minutes. [PutOptions] has the
	// same for many jobs.
	UnknownKind func(error)

	// Name is recorded as the last writer of the records that the client changes.
	// Default: the program's name, @ and the host's name.
	Name string

	// Version is the program's version, for the User-Agent header. Optional.
	Version string

	// TracerProvider records a span of OpenTelemetry for each job that is put, which its
	// workers continue. Default: none; then workers continue the span in the context
	// that a job is put with, if there is one.
	TracerProvider trace.TracerProvider

	// Transport replaces the HTTP transport: for tests (package clienttest), or a
	// network of your own.
	Transport policy.Transporter
}

// Client is one deployment. Its methods may be called from many goroutines at once.
type Client struct {
	stores   *deployment.Stores
	tracer   *tracing.Tracer // nil records nothing
	parallel int
	refused  atomic.Int64 // calls, because they came too fast
	name     string

	unknownKind func(error)

	mu      sync.Mutex
	checked map[string]time.Time // kinds of jobs, and when their workers were listed
}

// Open returns the client of a deployment. It makes no call: the first call shows
// whether the account can be reached. A client needs no closing.
func Open(o Options) (*Client, error) {
	if o.Account == "" && o.ConnectionString == "" {
		return nil, errors.New("no storage account: set Options.Account or Options.ConnectionString")
	}
	if o.Prefix == "" {
		o.Prefix = azure.DefaultPrefix
	}
	if o.Name == "" {
		o.Name = programName()
	}
	names, err := azure.NamesFor(o.Prefix, o.Queue)
	if err != nil {
		return nil, err
	}
	if o.Shards < 0 || o.Shards > queue.MaxShards {
		return nil, fmt.Errorf("jobs cannot be put over %d queues: set Options.Shards to 1 to %d, or to 0 for as many as the deployment has",
			o.Shards, queue.MaxShards)
	}
	c := &Client{parallel: max(o.Parallel, 0), name: o.Name, unknownKind: o.UnknownKind, checked: map[string]time.Time{}}
	account, err := azure.Connect(azure.AccountConfig{
		ConnectionString: o.ConnectionString, Account: o.Account, Credential: o.Credential, ClientID: o.ClientID,
		BlobEndpoint: o.BlobEndpoint, QueueEndpoint: o.QueueEndpoint,
		Concurrency: cmp.Or(c.parallel, producer.MostParallel), Version: o.Version, Transport: o.Transport,
		OnCall: func(call azure.Call) {
			if call.Throttled {
				c.refused.Add(1)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	c.stores = deployment.StoresOf(account, names)
	if o.Shards > 0 {
		c.stores.Jobs.Fix(o.Shards)
	}
	if o.TracerProvider != nil {
		c.tracer = tracing.New(o.TracerProvider, o.Version)
	}
	return c, nil
}

// programName names the program and its host.
func programName() string {
	program := filepath.Base(os.Args[0])
	host, err := os.Hostname()
	if err != nil {
		return program
	}
	return program + "@" + host
}

// Create creates the deployment's queues and containers that do not exist. Call it before
// the first Put, except on a deployment of infra/bicep, which has them. It is not an error
// if the identity may not create them: usually they exist, and otherwise the first use fails
// with [ErrNoDeployment].
func (c *Client) Create(ctx context.Context) error {
	s, containers := c.stores, map[string]*container.Client{}
	for _, name := range s.ContainerNames() {
		containers[name] = s.Account.Container(name)
	}
	return c.failure(ctx, producer.Create(ctx, s.AllQueues(), containers), toWrite)
}
