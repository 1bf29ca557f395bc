package lab

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/arm"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/emulator/tlsca"
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

	// Manager, if set, is a resource manager for the VMs. Its Metadata and
	// Tokens are set by [StartLocal]. ManagerPort is its port of 127.0.0.1.
	Manager     *arm.Options
	ManagerPort int
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

	// ManagerURL is the base of the resource manager; empty unless one was asked
	// for.
	ManagerURL string

	config    LocalConfig
	authority *tlsca.Authority // of everything that speaks TLS
	manager   *arm.Server
	doors     []*http.Server
	base      string // of the metadata service
	serving   sync.WaitGroup
}

// StartLocal opens a storage account, a metadata service and, if it is asked for,
// a resource manager on 127.0.0.1. Close ends them. The error wraps a
// [*PortTakenError] if something else listens on a port that was asked for.
func StartLocal(c LocalConfig) (*Local, error) {
	tokens := token.NewIssuer()
	authority, err := tlsca.New()
	if err != nil {
		return nil, err
	}
	l := &Local{
		config: c, authority: authority,
		Storage:  storage.New(storage.Options{Tokens: tokens}),
		Metadata: imds.New(imds.Options{Tokens: tokens}),
	}
	if err := l.openStorage(); err != nil {
		return nil, fmt.Errorf("start the storage emulator: %w", portTaken(err))
	}
	if err := l.openMetadata(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the metadata emulator: %w", portTaken(err)), l.Close())
	}
	if c.Manager == nil {
		return l, nil
	}
	if err := l.openManager(tokens); err != nil {
		return nil, errors.Join(fmt.Errorf("start the resource manager's emulator: %w", portTaken(err)), l.Close())
	}
	return l, nil
}

func (l *Local) openStorage() (err error) {
	at := storage.Addresses{Blob: loopback(l.config.BlobPort), Queue: loopback(l.config.QueuePort)}
	if l.config.Identity {
		l.Identity, err = newIdentity(l.Storage, at, l.authority)
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
	l.serve(listener, mux)
	return nil
}

// openManager opens the resource manager, whose clients insist on TLS.
func (l *Local) openManager(tokens *token.Issuer) error {
	config, err := l.authority.ServerConfig()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", loopback(l.config.ManagerPort)) //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return err
	}
	options := *l.config.Manager
	options.Metadata, options.Tokens = l.Metadata, tokens
	l.manager = arm.New(options)
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // an address has a port
	l.ManagerURL = "https://localhost:" + port
	l.serve(tls.NewListener(listener, config), l.manager.Handler())
	return nil
}

// serve serves h until Close.
func (l *Local) serve(listener net.Listener, h http.Handler) {
	door := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l.doors = append(l.doors, door)
	l.serving.Go(func() { _ = door.Serve(listener) }) // returns when Close closes the door
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

// writeAuthority writes the certificate that clients are to trust into a folder,
// and returns the file's path.
func (l *Local) writeAuthority(folder string) (string, error) {
	name := filepath.Join(folder, "ca.pem")
	return name, l.authority.WriteFile(name)
}

// Close ends the services and waits for them. What was stored stays readable
// through Storage.
func (l *Local) Close() error {
	var errs []error
	for _, door := range l.doors {
		errs = append(errs, door.Close())
	}
	if l.manager != nil {
		l.manager.Close()
	}
	l.serving.Wait()
	return errors.Join(append(errs, l.Storage.Close())...)
}
