package lab

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/emulator/token"
)

// LocalConfig says how a local Azure is reached. The zero value is one that
// other processes are told about: on ports that the system chooses, with a key.
type LocalConfig struct {
	// BlobPort, QueuePort and MetadataPort are ports of 127.0.0.1.
	BlobPort, QueuePort, MetadataPort int

	// Identity lets workers in with tokens of their VM's managed identity,
	// over TLS, as in production.
	Identity bool

	// Control, if set, is served under /lab/ beside the metadata service.
	Control http.Handler
}

// Local is an Azure in this process, reachable by other processes of this
// machine and by nobody else.
type Local struct {
	Storage  *storage.Server
	Metadata *imds.Server

	// ConnectionString leads a process to Storage.
	ConnectionString string

	// Identity is how a process with a managed identity gets there; nil unless
	// that was asked for.
	Identity *Identity

	config  LocalConfig
	door    *http.Server
	base    string
	serving sync.WaitGroup
}

// StartLocal opens a storage account and a metadata service on 127.0.0.1. Close
// ends them. The error wraps a [*PortTakenError] if something else listens on a
// port that was asked for.
func StartLocal(c LocalConfig) (*Local, error) {
	tokens := token.NewIssuer()
	l := &Local{
		config:   c,
		Storage:  storage.New(storage.Options{Tokens: tokens}),
		Metadata: imds.New(imds.Options{Tokens: tokens}),
	}
	if err := l.openStorage(); err != nil {
		return nil, fmt.Errorf("start the storage emulator: %w", portTaken(err))
	}
	if err := l.openMetadata(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the metadata emulator: %w", portTaken(err)), l.Storage.Close())
	}
	return l, nil
}

func (l *Local) openStorage() (err error) {
	at := storage.Addresses{Blob: loopback(l.config.BlobPort), Queue: loopback(l.config.QueuePort)}
	if l.config.Identity {
		l.Identity, err = newIdentity(l.Storage, at)
		return err
	}
	l.ConnectionString, err = l.Storage.Listen(at)
	return err
}

func (l *Local) openMetadata() error {
	listener, err := net.Listen("tcp", loopback(l.config.MetadataPort)) //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return err
	}
	l.base = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/", l.Metadata.Handler())
	if l.config.Control != nil {
		mux.Handle("/lab/", l.config.Control)
	}
	l.door = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	l.serving.Go(func() { _ = l.door.Serve(listener) }) // returns when Close closes the door
	return nil
}

// AddVM adds a VM, with the identity if there is one.
func (l *Local) AddVM(vm imds.VM) {
	if l.Identity != nil {
		vm.Identities = []imds.Identity{l.Identity.granted}
	}
	l.Metadata.AddVM(vm)
}

// Endpoint is the base of the metadata service as the named VM sees it.
func (l *Local) Endpoint(vm string) string { return l.base + "/vms/" + vm }

// Account returns clients of the storage account that open no sockets.
func (l *Local) Account() (*azure.Account, error) {
	return azure.Connect(azure.Config{
		ConnectionString: l.Storage.ConnectionString(), Transport: l.Storage.Transport(), Version: "lab",
	})
}

// Close ends both services and waits for them. What was stored stays readable
// through Storage.
func (l *Local) Close() error {
	err := l.door.Close()
	l.serving.Wait()
	return errors.Join(err, l.Storage.Close())
}
