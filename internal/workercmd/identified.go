package workercmd

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// identity is who logs: the worker, and the VM that it runs on. Both are known only some
// time after the start, when the metadata service has answered; until then they have the
// values for a machine without the service.
type identity struct{ worker, vm atomic.Pointer[string] }

func newIdentity(host, instance, vmName string) *identity {
	id := &identity{}
	id.setWorker(host + "-" + instance)
	if vmName == "" {
		vmName = host
	}
	id.setVM(vmName)
	return id
}

func (id *identity) setWorker(name string) { id.worker.Store(&name) }
func (id *identity) setVM(name string)     { id.vm.Store(&name) }

// identified is a handler that adds the worker and its VM to each line, so that lines of
// a whole fleet can be told apart wherever they are collected.
type identified struct {
	slog.Handler
	id *identity
}

// Handle implements [slog.Handler].
func (h identified) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(slog.String("worker", *h.id.worker.Load()), slog.String("vm", *h.id.vm.Load()))
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h identified) WithAttrs(attrs []slog.Attr) slog.Handler {
	return identified{h.Handler.WithAttrs(attrs), h.id}
}

// WithGroup implements [slog.Handler]. The worker and its VM are in the group then: only
// a handler of a job can open one.
func (h identified) WithGroup(name string) slog.Handler {
	return identified{h.Handler.WithGroup(name), h.id}
}
