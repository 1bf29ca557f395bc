package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/operate"
)

// Steering has the requests of operators to the workers of a deployment. The zero value
// asks for nothing.
type Steering struct {
	// Revision counts the changes.
	Revision int

	// Paused says that no worker claims messages; nil if they do. PausedKinds are the
	// kinds whose jobs are not started.
	Paused      *Mark
	PausedKinds []Mark

	// AllDrained says that every worker hands over its jobs and idles; nil if not. Drained
	// are the workers that do so by name, and Quarantined the VMs.
	AllDrained  *Mark
	Drained     []Mark
	Quarantined []Mark
}

// Mark says when, by whom and why something was asked for.
type Mark struct {
	Name   string // of the kind, the worker or the VM; empty where it concerns all
	At     time.Time
	By     string
	Reason string

	// FinishBy is until when running jobs may end before a drain; zero for a drain at once.
	FinishBy time.Time
}

// Steering reads what operators ask of the workers, in one call.
func (c *Client) Steering(ctx context.Context) (Steering, error) {
	found, _, err := c.stores.Control.Read(ctx, "")
	if err != nil {
		return Steering{}, c.steerError(err, toRead)
	}
	d := found.Document
	return Steering{
		Revision: d.Revision, Paused: markOf(d.Pause), PausedKinds: marksOf(d.PausedKinds),
		AllDrained: markOf(d.DrainAll), Drained: marksOf(d.Drains), Quarantined: marksOf(d.Quarantine),
	}, nil
}

func markOf(m *control.Mark) *Mark {
	if m == nil {
		return nil
	}
	return &Mark{At: m.At, By: m.By, Reason: m.Reason, FinishBy: m.FinishBy}
}

// marksOf returns marks in the order of their names.
func marksOf(marks map[string]control.Mark) []Mark {
	var all []Mark
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		m := markOf(new(marks[name]))
		m.Name = name
		all = append(all, *m)
	}
	return all
}

// SteerOptions are settings of the methods that ask something of workers.
type SteerOptions struct {
	// Reason is for people: workers log it.
	Reason string

	// Reset replaces a control document that is damaged ([ErrControlDamaged]), and keeps a
	// copy. All that it asked for ends: pauses, drains and quarantines. No cancel is lost.
	// A document that can be read is not replaced.
	Reset bool

	// KnownOnly refuses to pause a kind, or to quarantine a VM, that no heartbeat names: the
	// error is [ErrUnknownName]. A worker that knows the name may start later.
	KnownOnly bool

	// Finish is how long running jobs may take to end before a drain. The workers claim
	// nothing meanwhile, and drain when no job is left. 0 drains at once.
	Finish time.Duration
}

// ErrUnknownName means that no heartbeat names a VM or a kind ([SteerOptions].KnownOnly).
var ErrUnknownName = operate.ErrUnknownName

// Steered is a request to workers, with the names of the workers.
type Steered struct {
	// Revision is the revision of [Steering] after the request.
	Revision int

	// Damaged is the name of the blob with the control document that was replaced, in the
	// container of control; empty if none was.
	Damaged string

	// Workers are the names of the live workers that the request concerns, and Unsteered
	// the workers among them that do not follow because they cannot read the request.
	Workers, Unsteered []string

	fleet *operate.Fleet
	asked operate.Asked
}

// Pause stops all workers from claiming messages, or with kinds from starting jobs of
// these kinds, until Unpause. Running jobs continue.
func (c *Client) Pause(ctx context.Context, kinds []string, o SteerOptions) (Steered, error) {
	return c.steer(o, func(f *operate.Fleet) (operate.Asked, error) { return f.Pause(ctx, kinds, true) })
}

// Unpause ends the pause of kinds, or without kinds all pauses.
func (c *Client) Unpause(ctx context.Context, kinds []string, o SteerOptions) (Steered, error) {
	return c.steer(o, func(f *operate.Fleet) (operate.Asked, error) { return f.Pause(ctx, kinds, false) })
}

// Drain makes workers hand over their jobs and idle, as an eviction does, until Resume.
// Names are names of workers or of their VMs; none means all workers, also workers that
// start later.
func (c *Client) Drain(ctx context.Context, names []string, o SteerOptions) (Steered, error) {
	return c.steer(o, func(f *operate.Fleet) (operate.Asked, error) { return f.Drain(ctx, names, o.Finish) })
}

// Resume ends drains of workers and quarantines of VMs, by the names of workers or VMs. No
// names means all drains; a quarantine ends only by its name.
func (c *Client) Resume(ctx context.Context, names []string, o SteerOptions) (Steered, error) {
	return c.steer(o, func(f *operate.Fleet) (operate.Asked, error) { return f.Resume(ctx, names) })
}

// Quarantine drains all workers on VMs, also workers that start there later, until
// Resume.
func (c *Client) Quarantine(ctx context.Context, vms []string, o SteerOptions) (Steered, error) {
	return c.steer(o, func(f *operate.Fleet) (operate.Asked, error) { return f.Quarantine(ctx, vms) })
}

// steer asks something of workers.
func (c *Client) steer(o SteerOptions, do func(*operate.Fleet) (operate.Asked, error)) (Steered, error) {
	f := &operate.Fleet{
		Control: c.stores.Control, Workers: c.stores.Workers,
		Name: c.name, Reason: o.Reason, Reset: o.Reset, KnownOnly: o.KnownOnly,
	}
	asked, err := do(f)
	return Steered{
		Revision: asked.Revision, Damaged: asked.Damaged, Workers: asked.Workers, Unsteered: asked.Unsteered,
		fleet: f, asked: asked,
	}, c.steerError(err, toWrite)
}

// WaitFollowed waits until the workers have followed the request, or are gone, and at
// each look calls report with the names of the workers that are left. The error is
// [ErrNotFollowed] if ctx ends before.
func (c *Client) WaitFollowed(ctx context.Context, s Steered, report func(left []string)) error {
	return c.steerError(s.fleet.Wait(ctx, s.asked, report), toRead)
}

// steerError is readable for operations that read or change the requests of operators.
func (c *Client) steerError(err error, n need) error {
	switch {
	case errors.Is(err, control.ErrNewer):
		return errors.Join(ErrNewerVersion, err)
	case errors.Is(err, operate.ErrNotFollowed):
		return err
	}
	return c.readable(err, n)
}
