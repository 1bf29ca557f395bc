package cli

import (
	"errors"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"go.opentelemetry.io/otel/trace"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/outage"
)

// Storage are the flags for the storage account.
type Storage struct {
	Account       string `help:"Storage account's name. Not needed with AZURE_STORAGE_CONNECTION_STRING." group:"Storage" placeholder:"NAME"`
	ClientID      string `help:"Client id of the managed identity to sign in with. Without it the developer's own sign-in is used." env:"AZURE_CLIENT_ID" group:"Storage" placeholder:"GUID"`
	BlobEndpoint  string `help:"Blob endpoint, where it is not https://ACCOUNT.blob.core.windows.net." group:"Storage" placeholder:"URL"`
	QueueEndpoint string `help:"Queue endpoint, where it is not https://ACCOUNT.queue.core.windows.net." group:"Storage" placeholder:"URL"`
	Prefix        string `help:"Start of the names of queues and containers." default:"spotworker" group:"Storage"`
	Queue         string `help:"Queue of jobs, and with -ondemand and -poison behind it the two beside it. Default: PREFIX-jobs." group:"Storage" placeholder:"NAME"`

	// Shards is over how many queues jobs are put; 0 reads it. For programs that put jobs.
	Shards int `kong:"-"`

	// OnCall is called after each call to the account. Optional.
	OnCall func(azure.Call) `kong:"-"`

	// OnEnd is called when a call to the account has ended, retries included. Optional.
	OnEnd func(outage.Call) `kong:"-"`

	// TracerProvider records a span for each job that is put. Optional.
	TracerProvider trace.TracerProvider `kong:"-"`

	// Transport replaces the HTTP transport. For tests.
	Transport policy.Transporter `kong:"-"`
}

// connectionStringVariable holds endpoints and key, for emulators. It has no flag:
// every user of a machine can read command lines.
const connectionStringVariable = "AZURE_STORAGE_CONNECTION_STRING"

// Client returns a client of the deployment with that many concurrent calls, which
// records name as the last writer of what it changes. It sends nothing. Its error is a
// [ConfigError].
func (s *Storage) Client(parallel int, version, name string) (*client.Client, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c, err := client.Open(client.Options{
		ConnectionString: os.Getenv(connectionStringVariable), Account: s.Account, ClientID: s.ClientID,
		BlobEndpoint: s.BlobEndpoint, QueueEndpoint: s.QueueEndpoint, Prefix: s.Prefix, Queue: s.Queue,
		Shards: s.Shards, Parallel: parallel, Version: version, Name: name, TracerProvider: s.TracerProvider,
	})
	if err != nil {
		return nil, &ConfigError{err}
	}
	return c, nil
}

// Names returns the names of the deployment's queues and containers, once [Storage.Open]
// or [Storage.Client] has accepted them.
func (s *Storage) Names() azure.Names {
	names, _ := azure.NamesFor(s.Prefix, s.Queue)
	return names
}

// check returns an error if no account is given.
func (s *Storage) check() error {
	if s.Account == "" && os.Getenv(connectionStringVariable) == "" {
		return &ConfigError{errors.New("no storage account: set " + connectionStringVariable + ", or --account and AZURE_CLIENT_ID")}
	}
	return nil
}

// Open returns clients of the deployment's queues and containers, for that many
// concurrent calls. It sends nothing. Its error is a [ConfigError].
func (s *Storage) Open(concurrency int, version string) (*deployment.Stores, error) {
	names, err := azure.NamesFor(s.Prefix, s.Queue)
	if err != nil {
		return nil, &ConfigError{err}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	account, err := azure.Connect(azure.Config{
		ConnectionString: os.Getenv(connectionStringVariable),
		Account:          s.Account, ClientID: s.ClientID,
		BlobEndpoint: s.BlobEndpoint, QueueEndpoint: s.QueueEndpoint,
		Concurrency: concurrency, Version: version, OnCall: s.OnCall, OnEnd: s.OnEnd, Transport: s.Transport,
	})
	if err != nil {
		return nil, &ConfigError{err}
	}
	return deployment.StoresOf(account, names), nil
}
