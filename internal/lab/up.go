package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/emulator/arm"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
)

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
