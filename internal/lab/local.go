package lab

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/arm"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/tlsca"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// LocalConfig describes a local Azure. The zero value uses free ports.
type LocalConfig struct {
	// BlobPort, QueuePort and MetadataPort are ports of 127.0.0.1; 0 is a free one.
	BlobPort     int `help:"Port of the blob service; 0 is a free one." default:"10000"`
	QueuePort    int `help:"Port of the queue service; 0 is a free one." default:"10001"`
	MetadataPort int `help:"Port of the metadata service, and of lab evict; 0 is a free one." default:"10254"`

	// Latency is added to every call of the storage account; 0 is none.
	Latency time.Duration `help:"Added to every call of storage; Azure takes about 10ms within a region." default:"0s"`

	// Manager, if set, adds a resource manager for the VMs on ManagerPort.
	// [StartLocal] sets its Metadata.
	Manager     *arm.Options `kong:"-"`
	ManagerPort int          `name:"arm-port" help:"Port of the resource manager, for the Azure CLI; 0 is a free one." default:"8443"`

	// Control, if set, is served under /lab/ beside the metadata service.
	Control http.Handler `kong:"-"`
}

// Local is an Azure on loopback: a storage account, a metadata service and
// perhaps a resource manager.
type Local struct {
	Storage  *storage.Server
	Metadata *imds.Server

	// ConnectionString gives access to Storage.
	ConnectionString string

	// ManagerURL is the resource manager's address; empty without one.
	ManagerURL string

	config    LocalConfig
	authority *tlsca.Authority // signs the certificates of all TLS servers
	manager   *arm.Server
	servers   []*http.Server
	metadata  string // the metadata service's address
	serving   sync.WaitGroup
}

// StartLocal starts the services on 127.0.0.1; Close stops them. The error wraps
// a [*PortTakenError] if a requested port is in use.
func StartLocal(c LocalConfig) (*Local, error) {
	authority, err := tlsca.New()
	if err != nil {
		return nil, err
	}
	l := &Local{
		config: c, authority: authority,
		Metadata: imds.New(imds.Options{}),
		Storage:  storage.New(storage.Options{Latency: c.Latency}),
	}
	l.ConnectionString, err = l.Storage.Listen(storage.Addresses{Blob: loopback(c.BlobPort), Queue: loopback(c.QueuePort)})
	if err != nil {
		return nil, fmt.Errorf("start the storage emulator: %w", portTaken(err))
	}
	if err := l.startMetadata(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the metadata emulator: %w", err), l.Close())
	}
	if c.Manager == nil {
		return l, nil
	}
	if err := l.startManager(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the resource manager's emulator: %w", err), l.Close())
	}
	return l, nil
}

func (l *Local) startMetadata() error {
	listener, err := Listen(l.config.MetadataPort)
	if err != nil {
		return err
	}
	l.metadata = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/", l.Metadata.Handler())
	if l.config.Control != nil {
		mux.Handle("/lab/", l.config.Control)
	}
	l.serve(listener, mux)
	return nil
}

// startManager starts the resource manager, whose clients require TLS.
func (l *Local) startManager() error {
	config, err := l.authority.ServerConfig()
	if err != nil {
		return err
	}
	listener, err := Listen(l.config.ManagerPort)
	if err != nil {
		return err
	}
	options := *l.config.Manager
	options.Metadata = l.Metadata
	l.manager = arm.New(options)
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // an address has a port
	l.ManagerURL = "https://localhost:" + port
	l.serve(tls.NewListener(listener, config), l.manager.Handler())
	return nil
}

// serve serves h until Close.
func (l *Local) serve(listener net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l.servers = append(l.servers, server)
	l.serving.Go(func() { _ = server.Serve(listener) }) // returns when Close closes the server
}

// Endpoint returns the address of the metadata service of the named VM.
func (l *Local) Endpoint(vm string) string { return l.metadata + "/vms/" + vm }

// MetadataPort returns the port of the metadata service.
func (l *Local) MetadataPort() string {
	_, port, _ := net.SplitHostPort(l.metadata[len("http://"):]) // an address has a port
	return port
}

// Account returns clients of the storage account that open no sockets.
func (l *Local) Account() (*azure.Account, error) {
	return azure.Connect(azure.AccountConfig{ConnectionString: l.Storage.ConnectionString(), Transport: l.Storage.Transport(), Version: "lab"})
}

// ConnectionStringVariable names the environment variable with a connection string.
const ConnectionStringVariable = "AZURE_STORAGE_CONNECTION_STRING"

// WriteAuthority writes the certificate authority that clients must trust into a
// folder, and returns the file's path.
func (l *Local) WriteAuthority(folder string) (string, error) {
	name := filepath.Join(folder, "ca.pem")
	return name, l.authority.WriteFile(name)
}

// Close stops the services and waits for them. Storage can still be read.
func (l *Local) Close() error {
	var errs []error
	for _, server := range l.servers {
		errs = append(errs, server.Close())
	}
	if l.manager != nil {
		l.manager.Close()
	}
	l.serving.Wait()
	return errors.Join(append(errs, l.Storage.Close())...)
}

// PortTakenError reports that a port is in use.
type PortTakenError struct {
	Port int
	Err  error
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d of 127.0.0.1 is in use, perhaps by another lab up or by Azurite: stop it, or choose another port", e.Port)
}

// Unwrap returns the system's error.
func (e *PortTakenError) Unwrap() error { return e.Err }

// Listen listens on a port of 127.0.0.1, or on a free one if port is 0. The
// error wraps a [*PortTakenError] if the port is in use.
func Listen(port int) (net.Listener, error) {
	listener, err := net.Listen("tcp", loopback(port)) //nolint:noctx // listening on loopback does not wait
	return listener, portTaken(err)
}

// portTaken replaces an error that says that a port is in use by a
// [*PortTakenError].
func portTaken(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	port := 0
	if address, ok := op.Addr.(*net.TCPAddr); ok {
		port = address.Port
	}
	return &PortTakenError{Port: port, Err: err}
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
