package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/up"
)

// upCommand are the flags of lab up.
type upCommand struct {
	Workers       int           `help:"${about_up_workers}" placeholder:"N"`
	KindsFile     string        `help:"Kinds file of these workers: programs that are jobs." placeholder:"FILE" env:"-"`
	Commands      bool          `help:"These workers run any command that a job names." env:"-"`
	VMs           int           `name:"vms" help:"VMs at first, for workers that you start." default:"2"`
	Flexible      bool          `help:"${about_up_flexible}"`
	Identity      bool          `help:"Storage over TLS that accepts tokens of the VMs' managed identity, instead of a key."`
	BlobPort      int           `help:"Port of the blob service; 0 is a free one." default:"10000"`
	QueuePort     int           `help:"Port of the queue service; 0 is a free one." default:"10001"`
	MetadataPort  int           `help:"Port of the metadata service, and of lab evict; 0 is a free one." default:"10254"`
	ARMPort       int           `name:"arm-port" help:"Port of the resource manager, for the Azure CLI; 0 is a free one." default:"8443"`
	EvictionDelay time.Duration `help:"Time from az's simulate-eviction to the notice. On Azure it is 30s to 2m30s." default:"3s"`
	Latency       time.Duration `help:"Added to every call of a storage account; Azure takes about 10ms within a region." default:"0s"`
	Throttle      int           `help:"${about_up_throttle}" default:"0"`
	Files         int           `help:"Blobs of about 32 MiB to work on, made of files of this machine; 0 for none." default:"0"`
	Web           bool          `help:"Serve the page of spotctl web too; the guide ends with its address."`
	JobTime       time.Duration `help:"About how long a download of one takes; 0s is no limit." default:"12s"`
}

func (u *upCommand) run(ctx context.Context, stdout io.Writer) error {
	config := u.config()
	if err := config.Validate(); err != nil {
		return configError(err)
	}
	if config.Workers > 0 {
		var err error
		if config.Worker, err = workerBeside(); err != nil {
			return configError(err)
		}
	}
	config.Patience = func() (context.Context, context.CancelFunc) {
		return signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	}
	err := up.Run(ctx, config, stdout)
	if taken, ok := errors.AsType[*lab.PortTakenError](err); ok {
		return configError(fmt.Errorf("%w with --%s-port", taken, u.portOf(taken.Port)))
	}
	return err
}

// workerBeside returns the worker in the folder of this program.
func workerBeside() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	programs, err := lab.BinariesIn(filepath.Dir(self))
	return programs.Worker, err
}

// portOf returns the service that a port belongs to.
func (u *upCommand) portOf(port int) string {
	switch port {
	case u.BlobPort:
		return "blob"
	case u.QueuePort:
		return "queue"
	case u.ARMPort:
		return "arm"
	default:
		return "metadata"
	}
}

func (u *upCommand) config() up.Config {
	c := up.DefaultConfig()
	c.VMs, c.Local.Identity, c.Files, c.JobTime = u.VMs, u.Identity, u.Files, u.JobTime
	c.Local.BlobPort, c.Local.QueuePort, c.Local.MetadataPort, c.Local.ManagerPort = u.BlobPort, u.QueuePort, u.MetadataPort, u.ARMPort
	c.Local.Latency, c.Local.Throttle = u.Latency, u.Throttle
	c.Flexible, c.EvictionDelay, c.Web = u.Flexible, u.EvictionDelay, u.Web
	c.Workers, c.KindsFile, c.Commands = u.Workers, u.KindsFile, u.Commands
	return c
}

// order is how lab up gets an order.
type order struct {
	MetadataPort int `help:"Port of the metadata service of lab up." default:"10254"`

	json bool
}

// useJSON implements [inJSON].
func (o *order) useJSON() { o.json = true }

// send sends an order to lab up, and prints the answer. vm is empty for an order about storage.
func (o *order) send(stdout io.Writer, vm string, do func(metadataPort int) (string, error)) error {
	if o.MetadataPort < 1 || o.MetadataPort > 65535 {
		return configError(errNoPort)
	}
	said, err := do(o.MetadataPort)
	if err != nil {
		return err
	}
	if o.json {
		line, err := cli.JSONLine(answerLine{Name: vm, Text: said})
		if err != nil {
			return err
		}
		said = strings.TrimSuffix(string(line), "\n")
	}
	_, err = fmt.Fprintln(stdout, said)
	return err
}

// answerLine is an answer of lab up, in the JSON output.
type answerLine struct {
	Name string `json:"name,omitempty"` // of the VM
	Text string `json:"text"`
}

// vmOrder are the arguments of lab evict and lab withdraw.
type vmOrder struct {
	VM string `arg:"" name:"vm" help:"Name of the VM, as lab up prints it."`
	order
}

// evictCommand is lab evict.
type evictCommand struct{ vmOrder }

func (c *evictCommand) run(ctx context.Context, stdout io.Writer) error {
	return c.send(stdout, c.VM, func(port int) (string, error) { return up.Evict(ctx, port, c.VM) })
}

// withdrawCommand is lab withdraw.
type withdrawCommand struct{ vmOrder }

func (c *withdrawCommand) run(ctx context.Context, stdout io.Writer) error {
	return c.send(stdout, c.VM, func(port int) (string, error) { return up.Withdraw(ctx, port, c.VM) })
}

// stopCommand is lab stop.
type stopCommand struct{ order }

func (c *stopCommand) run(ctx context.Context, stdout io.Writer) error {
	return c.send(stdout, "", func(port int) (string, error) { return up.Stop(ctx, port) })
}

// startCommand is lab start.
type startCommand struct{ order }

func (c *startCommand) run(ctx context.Context, stdout io.Writer) error {
	return c.send(stdout, "", func(port int) (string, error) { return up.Start(ctx, port) })
}
