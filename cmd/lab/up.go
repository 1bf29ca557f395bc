package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/up"
)

// upCommand are the flags of lab up.
type upCommand struct{ up.Config }

func (u *upCommand) run(ctx context.Context, stdout io.Writer) error {
	config := u.Config
	config.FileSize = lab.FileSize
	if err := config.Validate(); err != nil {
		return configError(err)
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

// portOf returns the service that a port belongs to.
func (u *upCommand) portOf(port int) string {
	switch port {
	case u.Local.BlobPort:
		return "blob"
	case u.Local.QueuePort:
		return "queue"
	case u.Local.ManagerPort:
		return "arm"
	default:
		return "metadata"
	}
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
