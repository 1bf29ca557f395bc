// Package clientflags opens a client of the deployment that the flags for storage name.
//
// It is apart from package cli, so that the worker, which has the same flags, contains
// no client.
package clientflags

import (
	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
)

// Open returns a client of the deployment with that many concurrent calls, which records
// name as the last writer of its changes. It sends nothing. Its error is a
// [cli.ConfigError].
func Open(s *cli.Storage, parallel int, version, name string) (*client.Client, error) {
	config, err := s.Connection()
	if err != nil {
		return nil, err
	}
	c, err := client.Open(client.Options{
		ConnectionString: config.ConnectionString, Account: config.Account, ClientID: config.ClientID,
		BlobEndpoint: config.BlobEndpoint, QueueEndpoint: config.QueueEndpoint, Prefix: s.Prefix, Queue: s.Queue,
		Shards: s.Shards, Parallel: parallel, Version: version, Name: name, TracerProvider: s.TracerProvider,
	})
	if err != nil {
		return nil, &cli.ConfigError{Err: err}
	}
	return c, nil
}
