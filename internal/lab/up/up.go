package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/arm"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// maxVMs is how many VMs there may be at first.
const maxVMs = 32

// maxLatency is the longest latency that may be added to a call.
const maxLatency = 5 * time.Second

// Config describes a local Azure that runs until it is stopped. The tags are those of the flags of
// `lab up`.
type Config struct {
	// Workers is how many workers are started, each on a VM of its own; 0 leaves VMs to workers that
	// people start. Worker is a program that is run with [labworker.Command]. Default: this one.
	Workers int    `help:"${about_up_workers}" placeholder:"N"`
	Worker  string `kong:"-"`

	// KindsFile and Commands are flags of these workers.
	KindsFile string `help:"Kinds file of these workers: programs that are jobs." placeholder:"FILE" env:"-"`
	Commands  bool   `help:"These workers run any command that a job names." env:"-"`

	// VMs is how many there are at first, 1 … 32.
	VMs int `name:"vms" help:"VMs at first, for workers that you start." default:"2"`

	// Flexible makes the scale set one of Flexible orchestration, as the one in
	// infra/bicep is: each VM is a resource of its own.
	Flexible bool `help:"${about_up_flexible}"`

	// Local are the ports. [Run] sets its Control and Manager.
	Local lab.LocalConfig `embed:""`

	// EvictionDelay is the time from a call of the resource manager to the
	// Preempt.
	EvictionDelay time.Duration `help:"Time from az's simulate-eviction to the notice. On Azure it is 30s to 2m30s." default:"3s"`

	// Files is how many blobs to work on there are, 0 … [lab.MaxFiles]. Each has
	// about FileSize bytes, and a job for one takes about JobTime, 0 for no limit.
	Files    int           `help:"Blobs of about 32 MiB to work on, made of files of this machine; 0 for none." default:"0"`
	FileSize int64         `kong:"-"`
	JobTime  time.Duration `help:"About how long a download of one takes; 0s is no limit." default:"12s"`

	// Web serves the page of spotctl web too, with changes allowed.
	Web bool `help:"Serve the page of spotctl web too; the guide ends with its address."`

	// Roots are the folders whose files are used, see [lab.Choose]. Default:
	// [lab.Roots].
	Roots []string `kong:"-"`

	// Patience returns a context that ends when workers that save their jobs are to be killed, and
	// what frees it. Default: they have [lab.HandOver].
	Patience func() (context.Context, context.CancelFunc) `kong:"-"`
}

// Default ports of `lab up`. The ports of blobs and queues are Azurite's.
const (
	DefaultBlobPort     = 10000
	DefaultQueuePort    = 10001
	DefaultMetadataPort = 10254
	DefaultManagerPort  = 8443
)

// DefaultConfig is `lab up` without flags.
func DefaultConfig() Config {
	return Config{
		Local: lab.LocalConfig{
			BlobPort: DefaultBlobPort, QueuePort: DefaultQueuePort,
			MetadataPort: DefaultMetadataPort, ManagerPort: DefaultManagerPort,
		},
		EvictionDelay: arm.DefaultEvictionDelay,
		VMs:           2, FileSize: lab.FileSize, JobTime: lab.JobTime,
	}
}

// Validate returns an error that says what to change, or nil.
func (c Config) Validate() error {
	for flag, port := range map[string]int{
		"--blob-port": c.Local.BlobPort, "--queue-port": c.Local.QueuePort,
		"--metadata-port": c.Local.MetadataPort, "--arm-port": c.Local.ManagerPort,
	} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s %d is not a port", flag, port)
		}
	}
	switch {
	case c.VMs < 1 || c.VMs > maxVMs:
		return fmt.Errorf("--vms %d is out of range: give 1 to %d", c.VMs, maxVMs)
	case c.Files < 0 || c.Files > lab.MaxFiles:
		return fmt.Errorf("--files %d is out of range: give 0 to %d", c.Files, lab.MaxFiles)
	case c.JobTime < 0:
		return errors.New("--job-time must not be negative")
	case c.EvictionDelay < 0:
		return errors.New("--eviction-delay must not be negative")
	case c.Local.Latency < 0 || c.Local.Latency > maxLatency:
		return fmt.Errorf("--latency %s is out of range: give 0s to %s", c.Local.Latency, maxLatency)
	}
	return c.validateWorkers()
}

func (c Config) validateWorkers() error {
	switch {
	case c.Workers < 0 || c.Workers > maxVMs:
		return fmt.Errorf("--workers %d is out of range: give 1 to %d", c.Workers, maxVMs)
	case c.Workers == 0 && (c.KindsFile != "" || c.Commands):
		return errors.New("--kinds-file and --commands are for the workers that lab up starts: give --workers too")
	}
	return nil
}

// up is a running local Azure.
type up struct {
	config   Config
	narrator *text.Narrator
	local    *lab.Local
	control  *control
	names    azure.Names
	folder   string                           // of the certificate and of az
	number   int                              // of the last VM
	leaving  map[string]eviction              // announced ones, by VM
	gone     map[string]bool                  // evicted VMs
	down     atomic.Bool                      // whether the storage account is stopped
	pace     func(storage.Call) storage.Fault // limits downloads; nil for none
	sample   string                           // a blob to work on; empty without any
	commands guide
	workers  workers // without news if Config.Workers is 0
}

// Run runs a local Azure until ctx ends: storage, metadata and a resource manager
// for some VMs, queues and containers, and blobs to work on. It prints the
// environment variables and commands that connect workers, a producer and the
// Azure CLI to it, and what happens to the VMs. [Evict] and [Withdraw] control
// it. It returns nil when ctx ends and its workers have handed over their jobs. It
// leaves no process behind, and no files but the logs of workers that failed.
func Run(ctx context.Context, c Config, out io.Writer) (err error) {
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
	if c.Web {
		page, err := u.listenWeb()
		if err != nil {
			return err
		}
		u.commands.page = page.Address()
		serving, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- page.Serve(serving) }()
		defer func() { stop(); err = errors.Join(err, <-ended) }()
	}
	if c.Workers == 0 {
		u.guideAndServe(ctx)
	} else if err := u.work(ctx); err != nil {
		return err
	}
	fmt.Fprintln(u.narrator, "The local Azure has ended; everything stored in it is deleted.")
	return nil
}

func (u *up) guideAndServe(ctx context.Context) {
	u.commands.write(u.narrator, u.present())
	u.serve(ctx)
}

func newUp(c Config, out io.Writer) *up {
	u := &up{
		config: c, narrator: text.NewNarrator(out), control: newControl(),
		leaving: map[string]eviction{}, gone: map[string]bool{},
	}
	u.config.Local.Control = u.control
	u.config.Local.Manager = &arm.Options{Evict: u.evictFromManager, EvictionDelay: c.EvictionDelay, PageSeed: 1}
	if c.EvictionDelay == 0 {
		u.config.Local.Manager.EvictionDelay = -1 // none
	}
	return u
}

// open starts the services. If it fails there is nothing to close.
func (u *up) open() (err error) {
	if u.folder, err = os.MkdirTemp("", "spotworker-lab-"); err != nil {
		return err
	}
	if u.local, err = lab.StartLocal(u.config.Local); err != nil {
		return errors.Join(err, sandbox.RemoveTree(u.folder))
	}
	return nil
}

func (u *up) close() error {
	close(u.control.closed)
	return errors.Join(u.local.Close(), sandbox.RemoveTree(u.folder))
}

// prepare creates queues and containers as a deployment does, and the first VMs.
func (u *up) prepare(ctx context.Context) (err error) {
	if u.names, err = azure.NamesFor(azure.DefaultPrefix, ""); err != nil {
		return err
	}
	account, err := u.local.Account()
	if err != nil {
		return err
	}
	if err := deployment.StoresOf(account, u.names).Create(ctx); err != nil {
		return err
	}
	if u.config.Files > 0 {
		if err := u.upload(ctx, account); err != nil {
			return err
		}
	}
	u.local.Storage.OnCall(func(c storage.Call) storage.Fault {
		switch {
		case u.down.Load():
			return storage.Fault{DropRequest: true}
		case u.pace != nil:
			return u.pace(c)
		default:
			return storage.Fault{}
		}
	})
	u.local.Metadata.AddVM(imds.VM{Name: producerVM, Priority: "Regular", ResourceGroup: u.vm(1).ResourceGroup})
	for range cmp.Or(u.config.Workers, u.config.VMs) {
		u.newVM()
	}
	u.commands, err = u.newGuide(ctx)
	return err
}

// upload uploads the blobs to work on, and limits the bandwidth of their downloads.
func (u *up) upload(ctx context.Context, account *azure.Account) error {
	roots := u.config.Roots
	if len(roots) == 0 {
		roots = lab.Roots(ctx)
	}
	files, err := lab.Choose(roots, u.config.Files, u.config.FileSize)
	if err != nil {
		return err
	}
	if err := lab.Upload(ctx, account.Container(lab.InputContainer), files); err != nil {
		return err
	}
	u.sample = files[0].Blob
	pace := lab.PaceFor(files, u.config.JobTime)
	u.pace = pace.Fault
	u.narrator.Say("%s of real files are in container %s, %s in all. Downloads go %s.",
		text.Plural(len(files), "blob"), lab.InputContainer, text.Size(lab.TotalSize(files)), pace)
	return nil
}

// The scale set of Flexible orchestration has the names that infra/bicep gives it unless
// told otherwise, so that commands for a deployment find its VMs.
const (
	flexibleGroup = azure.DefaultPrefix
	flexibleSet   = azure.DefaultPrefix + "-" + lab.ScaleSet
)

// vm describes the nth VM of the scale set, counted from 1. In a Flexible one names end in
// eight characters.
func (u *up) vm(n int) imds.VM {
	if u.config.Flexible {
		return imds.VM{Name: fmt.Sprintf("%s_%08x", flexibleSet, n), ScaleSet: flexibleSet, ResourceGroup: flexibleGroup}
	}
	return imds.VM{Name: lab.VMName(n), ScaleSet: lab.ScaleSet}
}

// newVM adds a VM to the scale set and returns its name.
func (u *up) newVM() string {
	u.number++
	vm := u.vm(u.number)
	u.local.Metadata.AddVM(vm)
	return vm.Name
}
