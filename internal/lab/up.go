package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/emulator/arm"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
)

// UpConfig describes a local Azure that stays until it is told to end.
type UpConfig struct {
	// Ports and whether managed identities are used. Control and Manager are
	// set by [Up].
	LocalConfig

	// VMs is how many there are at first, 1 … [MaxWorkers].
	VMs int

	// Flexible makes the scale set one of Flexible orchestration, as the one in
	// infra/bicep is: each VM is a resource of its own.
	Flexible bool

	// EvictionDelay is how long after a call of the resource manager a Preempt
	// appears.
	EvictionDelay time.Duration

	// Files, FileSize, Roots and JobTime are about the blobs to work on, as in
	// [Config]. Without files there are none.
	Files    int
	FileSize int64
	Roots    []string
	JobTime  time.Duration
}

// Default ports of `lab up`: those of blobs and queues are what Microsoft's
// emulators have.
const (
	DefaultBlobPort     = 10000
	DefaultQueuePort    = 10001
	DefaultMetadataPort = 10254
	DefaultManagerPort  = 8443
)

// DefaultUpConfig is what `lab up` does without flags.
func DefaultUpConfig() UpConfig {
	d := DefaultConfig()
	return UpConfig{
		LocalConfig: LocalConfig{
			BlobPort: DefaultBlobPort, QueuePort: DefaultQueuePort,
			MetadataPort: DefaultMetadataPort, ManagerPort: DefaultManagerPort,
		},
		EvictionDelay: arm.DefaultEvictionDelay,
		VMs:           2, Files: 8, FileSize: d.FileSize, JobTime: d.JobTime,
	}
}

// Validate says what must be changed, or returns nil.
func (c UpConfig) Validate() error {
	for flag, port := range map[string]int{
		"--blob-port": c.BlobPort, "--queue-port": c.QueuePort, "--metadata-port": c.MetadataPort, "--arm-port": c.ManagerPort,
	} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s %d is no port", flag, port)
		}
	}
	switch {
	case c.VMs < 1 || c.VMs > MaxWorkers:
		return fmt.Errorf("--vms %d is out of range: give 1 to %d", c.VMs, MaxWorkers)
	case c.Files < 0 || c.Files > MaxFiles:
		return fmt.Errorf("--files %d is out of range: give 0 to %d", c.Files, MaxFiles)
	case c.JobTime < 0:
		return errors.New("--job-time must not be negative")
	case c.EvictionDelay < 0:
		return errors.New("--eviction-delay must not be negative")
	}
	return nil
}

// up is a local Azure that stays.
type up struct {
	UpConfig
	*teller
	local    *Local
	control  *control
	names    azure.Names
	folder   string              // of the certificate and of az
	number   int                 // of the last VM
	leaving  map[string]eviction // by VM
	gone     map[string]bool     // VMs that were taken away
	sample   string              // one of the blobs to work on; empty without any
	commands guide
}

// Up runs a local Azure until ctx ends: storage, metadata and a resource manager
// for some VMs, queues and containers, and blobs to work on. To out it writes the
// environment and the commands that lead workers, a producer and the Azure CLI
// there, and what happens to the VMs. [EvictAt] and [WithdrawAt] give it orders.
// It returns nil when it ended because ctx did, and leaves nothing behind.
func Up(ctx context.Context, c UpConfig, out io.Writer) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	u := newUp(c, out)
	if err := u.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.close()) }()
	if err := u.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	u.commands.write(u, u.present())
	u.serve(ctx)
	fmt.Fprintln(u, "The local Azure ends, and what was stored in it is gone.")
	return nil
}

func newUp(c UpConfig, out io.Writer) *up {
	u := &up{
		UpConfig: c, teller: newTeller(out), control: newControl(),
		leaving: map[string]eviction{}, gone: map[string]bool{},
	}
	u.Control = u.control
	u.Manager = &arm.Options{Evict: u.evictAsCalled, EvictionDelay: c.EvictionDelay}
	if c.EvictionDelay == 0 {
		u.Manager.EvictionDelay = -1 // none
	}
	return u
}

// open opens the services. Only if it returns nil there is something to close.
func (u *up) open() (err error) {
	if u.folder, err = os.MkdirTemp("", "spotworker-lab-"); err != nil {
		return err
	}
	if u.local, err = StartLocal(u.LocalConfig); err != nil {
		return errors.Join(err, os.RemoveAll(u.folder))
	}
	return nil
}

func (u *up) close() error {
	close(u.control.over)
	return errors.Join(u.local.Close(), os.RemoveAll(u.folder))
}

// prepare makes what a deployment would, and the first VMs.
func (u *up) prepare(ctx context.Context) (err error) {
	if u.names, err = azure.NamesFor(azure.DefaultPrefix, ""); err != nil {
		return err
	}
	account, err := u.local.Account()
	if err != nil {
		return err
	}
	stores := cli.StoresOf(account, u.names)
	containers := map[string]*container.Client{}
	for _, name := range []string{u.names.Records, u.names.Payloads, u.names.Workers} {
		containers[name] = account.Container(name)
	}
	if err := producer.Create(ctx, []*queue.Queue{stores.Queue, stores.OnDemand, stores.Poison}, containers); err != nil {
		return err
	}
	if u.Files > 0 {
		if err := u.fill(ctx, account); err != nil {
			return err
		}
	}
	u.local.AddVM(imds.VM{Name: producerVM, Priority: "Regular"})
	for range u.VMs {
		u.newVM()
	}
	u.commands, err = u.newGuide()
	return err
}

// fill uploads the blobs to work on, and limits their downloads.
func (u *up) fill(ctx context.Context, account *azure.Account) error {
	roots := u.Roots
	if len(roots) == 0 {
		roots = Roots(GoRoot(ctx))
	}
	files, err := Choose(roots, u.Files, u.FileSize)
	if err != nil {
		return err
	}
	if err := Upload(ctx, account.Container(inputContainer), files); err != nil {
		return err
	}
	u.sample = files[0].Blob
	pace := paceFor(inputContainer, files, u.JobTime)
	u.local.Storage.OnCall(pace.fault)
	u.say("%s of real files are in container %s, %s in all. Downloads go %s.",
		plural(len(files), "blob"), inputContainer, size(totalSize(files)), pace)
	return nil
}

// vmName is the name of a VM of the scale set, counted from 1. In a Flexible one
// names end in eight characters.
func (u *up) vmName(n int) string {
	if u.Flexible {
		return fmt.Sprintf("%s_%08x", scaleSet, n)
	}
	return vmName(n)
}

// newVM adds a VM to the scale set and returns its name.
func (u *up) newVM() string {
	u.number++
	name := u.vmName(u.number)
	u.local.AddVM(imds.VM{Name: name, ScaleSet: scaleSet})
	return name
}
