package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"go.opentelemetry.io/otel/trace"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

// Storage are the flags for the storage account.
type Storage struct {
	Account       string `help:"Storage account's name. Not needed with AZURE_STORAGE_CONNECTION_STRING." group:"Storage" placeholder:"NAME"`
	ClientID      string `help:"${about_client_id}" env:"AZURE_CLIENT_ID" group:"Storage" placeholder:"GUID"`
	BlobEndpoint  string `help:"Blob endpoint, where it is not https://ACCOUNT.blob.core.windows.net." group:"Storage" placeholder:"URL"`
	QueueEndpoint string `help:"Queue endpoint, where it is not https://ACCOUNT.queue.core.windows.net." group:"Storage" placeholder:"URL"`
	Prefix        string `help:"Start of the names of queues and containers." default:"spotworker" group:"Storage"`
	Queue         string `help:"${about_queue}" group:"Storage" placeholder:"NAME"`

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

// Names returns the names of the deployment's queues and containers, once [Storage.Open]
// has accepted them.
func (s *Storage) Names() azure.Names {
	names, _ := azure.NamesFor(s.Prefix, s.Queue)
	return names
}

// Connection returns how to reach the deployment's account. Its error is a [ConfigError].
func (s *Storage) Connection() (azure.AccountConfig, error) {
	c := azure.AccountConfig{
		ConnectionString: os.Getenv(connectionStringVariable), Account: strings.TrimSpace(s.Account), ClientID: strings.TrimSpace(s.ClientID),
		BlobEndpoint: strings.TrimSpace(s.BlobEndpoint), QueueEndpoint: strings.TrimSpace(s.QueueEndpoint),
	}
	if c.Account == "" && c.ConnectionString == "" {
		return c, &ConfigError{errors.New("no storage account: set " + connectionStringVariable +
			", or --account and AZURE_CLIENT_ID")}
	}
	for _, given := range []struct{ flag, value, key string }{
		{"account", c.Account, "AccountName"},
		{"blob-endpoint", c.BlobEndpoint, "BlobEndpoint"},
		{"queue-endpoint", c.QueueEndpoint, "QueueEndpoint"},
	} {
		if given.value == "" || c.ConnectionString == "" {
			continue
		}
		is := azure.Setting(c.ConnectionString, given.key)
		if !strings.EqualFold(strings.TrimSuffix(is, "/"), strings.TrimSuffix(given.value, "/")) {
			return c, &ConfigError{fmt.Errorf("--%s is %q, and %s has %s %q: unset the variable, or leave the flag (%s_%s) out",
				given.flag, given.value, connectionStringVariable, given.key, is,
				envPrefix, strings.ToUpper(strings.ReplaceAll(given.flag, "-", "_")))}
		}
	}
	return c, nil
}

// Where names the deployment and its account, for people; empty if the flags are wrong.
func (s *Storage) Where() string {
	stores, err := s.Open(1, "")
	if err != nil {
		return ""
	}
	return s.Prefix + " on " + stores.Account.Endpoint()
}

// Open returns clients of the deployment's queues and containers, for that many
// concurrent calls. It sends nothing. Its error is a [ConfigError].
func (s *Storage) Open(concurrency int, version string) (*deployment.Stores, error) {
	names, err := azure.NamesFor(s.Prefix, s.Queue)
	if err != nil {
		return nil, &ConfigError{err}
	}
	config, err := s.Connection()
	if err != nil {
		return nil, err
	}
	config.Concurrency, config.Version = concurrency, version
	config.OnCall, config.OnEnd, config.Transport = s.OnCall, s.OnEnd, s.Transport
	account, err := azure.Connect(config)
	if err != nil {
		return nil, &ConfigError{err}
	}
	return deployment.StoresOf(account, names), nil
}
