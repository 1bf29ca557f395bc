package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// FleetConfig describes how the workers of a fleet are started.
type FleetConfig struct {
	// Worker is the path of the worker binary.
	Worker string

	// ConnectionString is of the storage account. It must name loopback endpoints for
	// blobs and queues.
	ConnectionString string

	// StorageFor returns the connection string of one VM's worker, in place of
	// ConnectionString. Optional.
	StorageFor func(vm string) string

	// Endpoint returns the address of a VM's metadata service, on loopback.
	Endpoint func(vm string) string

	// Args are further flags of the worker. The fleet sets the metadata endpoint, the
	// log, and the port for health and metrics.
	Args []string

	// ArgsFor returns further flags of one VM's worker. Optional.
	ArgsFor func(vm string) []string

	// Listen is the address for health and metrics, which each worker logs; empty is
	// none.
	Listen string

	// Logs is the folder for one log file per VM, NAME.log.
	Logs string

	// OnLine is called with every line that a worker logs, without its line
	// break, in order for each VM. Optional.
	OnLine func(vm string, line []byte)

	// OnEnd is called when a worker ends that the fleet did not stop. Optional.
	OnEnd func(vm *VM, err error)
}

// Fleet is a set of worker processes, each the only one on its simulated VM. It ends no
// other process.
type Fleet struct {
	config FleetConfig

	mu  sync.Mutex
	vms []*VM // all that were started, in order
}

// NewFleet returns a fleet without VMs.
func NewFleet(c FleetConfig) *Fleet { return &Fleet{config: c} }

// Start starts a worker on a VM of that name. If the worker could reach anything
// beyond loopback, it starts nothing and the error wraps [ErrNotLocal].
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
	// The fleet's own flags come last: the last of a repeated flag applies.
	args = append(args, "--metadata-endpoint="+endpoint, "--log-format=json", "--log-level=debug", "--listen="+cmp.Or(c.Listen, "none"))
	vm := &VM{Name: name, LogFile: log.Name(), ended: make(chan struct{})}
	if err := vm.start(c, args, log); err != nil {
		return nil, errors.Join(fmt.Errorf("start worker %s: %w", name, err), log.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.vms = append(f.vms, vm)
	return vm, nil
}

// Running returns the VMs whose workers are running, in the order of starting.
func (f *Fleet) Running() []*VM {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.vms), (*VM).hasEnded)
}

// Close sends SIGTERM to all workers, kills the rest when ctx ends, and returns when all
// have ended and their logs are read. The error names the workers that were killed or
// failed.
func (f *Fleet) Close(ctx context.Context) error {
	running := f.Running()
	for _, vm := range running {
		vm.Terminate()
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

// HandOver is how long Close may take: the worker's drain budget and a little
// more.
const HandOver = 12 * time.Second

// environment is the whole environment of a child process. It passes on no
// AZURE_ variable, which could give access to a real account, and no proxy.
func environment(connectionString string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		ConnectionStringVariable + "=" + connectionString,
	}
}

// ScaleSet is the name of the simulated scale set.
const ScaleSet = "spot"

// VMName returns the name of the nth VM of the scale set, counted from 1.
func VMName(n int) string { return fmt.Sprintf("%s_%d", ScaleSet, n) }
