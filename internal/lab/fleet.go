package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// FleetConfig says how the workers of a fleet are started.
type FleetConfig struct {
	// Worker is the path of the worker binary.
	Worker string

	// ConnectionString leads to the storage account. It must name loopback
	// endpoints for blobs and queues.
	ConnectionString string

	// StorageFor returns the connection string of a VM, in place of
	// ConnectionString. Optional.
	StorageFor func(vm string) string

	// Endpoint returns the base of a VM's metadata service, on loopback.
	Endpoint func(vm string) string

	// Args are the worker's flags beside those that the fleet sets: metadata
	// endpoint, log, and no port, since its workers share a machine.
	Args []string

	// ArgsFor returns further flags of one VM's worker. Optional.
	ArgsFor func(vm string) []string

	// Logs is the folder for one file per VM, NAME.log.
	Logs string

	// OnLine gets every line that a worker logs, without its end. Lines of one
	// VM come in order. Optional.
	OnLine func(vm string, line []byte)

	// OnEnd is told of a worker that ended without being asked to. Optional.
	OnEnd func(vm *VM, err error)
}

// Fleet is a set of worker processes, each the only one on its pretended VM. It
// ends no process but those that it started.
type Fleet struct {
	config FleetConfig

	mu  sync.Mutex
	vms []*VM // all that were started, in order
}

// NewFleet returns a fleet without VMs.
func NewFleet(c FleetConfig) *Fleet { return &Fleet{config: c} }

// Start starts a worker on a VM of that name. The error wraps [ErrNotLocal],
// and nothing was started, if the worker could reach anything beyond loopback.
func (f *Fleet) Start(name string) (*VM, error) {
	c := f.config
	if c.StorageFor != nil {
		c.ConnectionString = c.StorageFor(name)
	}
	endpoint := c.Endpoint(name)
	if err := errors.Join(checkMetadata(endpoint), CheckStorage(c.ConnectionString)); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	log, err := os.Create(filepath.Join(c.Logs, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	args := slices.Clone(c.Args)
	if c.ArgsFor != nil {
		args = append(args, c.ArgsFor(name)...)
	}
	// The fleet's own flags come last: of a flag given twice the last counts.
	args = append(args, "--metadata-endpoint="+endpoint, "--log-format=json", "--log-level=debug", "--listen=none")
	vm := &VM{Name: name, LogFile: log.Name(), ended: make(chan struct{})}
	if err := vm.start(c, args, log); err != nil {
		return nil, errors.Join(fmt.Errorf("start worker %s: %w", name, err), log.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.vms = append(f.vms, vm)
	return vm, nil
}

// Running returns the VMs whose workers have not ended, in the order of starting.
func (f *Fleet) Running() []*VM {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.vms), (*VM).over)
}

// All returns the names of all VMs that were started, in the order of starting.
func (f *Fleet) All() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, vm := range f.vms {
		names = append(names, vm.Name)
	}
	return names
}

// Close asks all workers to hand over (SIGTERM), kills those that have not
// ended when ctx does, and returns when all have ended and all they logged was
// passed on. The error names workers that did not end well by themselves.
func (f *Fleet) Close(ctx context.Context) error {
	running := f.Running()
	for _, vm := range running {
		vm.terminate()
	}
	var errs []error
	for _, vm := range running {
		select {
		case <-vm.ended:
			if vm.err != nil {
				errs = append(errs, fmt.Errorf("worker %s: %w", vm.Name, vm.err))
			}
		case <-ctx.Done():
			vm.Kill()
			errs = append(errs, fmt.Errorf("worker %s did not hand over in time and was killed", vm.Name))
		}
	}
	return errors.Join(errs...)
}

// HandOver is how long Close may take: the worker's budget and a little more.
const HandOver = 12 * time.Second

// environment is all that a child sees of ours. Above all no AZURE_ variable of
// the user's comes through, which could lead to a real account, and no proxy.
func environment(connectionString string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"AZURE_STORAGE_CONNECTION_STRING=" + connectionString,
	}
}
