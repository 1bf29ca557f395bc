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
)

// Local is an Azure in this process, reachable by other processes of this
// machine and by nobody else.
type Local struct {
	Storage  *storage.Server
	Metadata *imds.Server

	// ConnectionString leads a process to Storage.
	ConnectionString string

	door    *http.Server
	base    string
	serving sync.WaitGroup
}

// StartLocal opens a storage account and a metadata service on ports of
// 127.0.0.1 that the system chooses. Close ends them.
func StartLocal() (*Local, error) {
	l := &Local{Storage: storage.New(storage.Options{}), Metadata: imds.New(imds.Options{})}
	var err error
	if l.ConnectionString, err = l.Storage.Listen(storage.Addresses{}); err != nil {
		return nil, fmt.Errorf("start the storage emulator: %w", err)
	}
	if err := l.openMetadata(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the metadata emulator: %w", err), l.Storage.Close())
	}
	return l, nil
}

func (l *Local) openMetadata() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not wait
	if err != nil {
		return err
	}
	l.base = "http://" + listener.Addr().String()
	l.door = &http.Server{Handler: l.Metadata.Handler(), ReadHeaderTimeout: time.Minute}
	l.serving.Go(func() { _ = l.door.Serve(listener) }) // returns when Close closes the door
	return nil
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
