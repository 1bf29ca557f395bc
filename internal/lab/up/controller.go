package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/text"
)

// observeEvery is the time between two looks at the announced evictions.
const observeEvery = 20 * time.Millisecond

// eviction is an announced eviction.
type eviction struct {
	id        string
	announced time.Time
	notBefore time.Time
	reported  bool // that the VM has seen it
}

// serve carries out orders, and removes evicted VMs when their notice has ended,
// until ctx ends.
func (u *up) serve(ctx context.Context) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		select {
		case o := <-u.control.orders:
			o.answer <- u.carryOut(o)
		case now := <-ticker.C:
			u.observe(now)
		case n := <-u.workers.news:
			u.hear(n)
		case <-ctx.Done():
			return
		}
	}
}

func (u *up) carryOut(o order) answer {
	if o.action == actionStop || o.action == actionStart {
		return u.outage(o.action == actionStop)
	}
	if !slices.Contains(u.present(), o.vm) {
		return answer{err: fmt.Errorf("there is no VM %q here; there are %s", o.vm, strings.Join(u.present(), ", "))}
	}
	e, leaving := u.leaving[o.vm]
	switch {
	case o.action == actionEvict && leaving:
		return answer{err: fmt.Errorf("%s is being evicted already, at %s", o.vm, clock(e.notBefore))}
	case o.action == actionEvict:
		return u.evict(o.vm)
	case !leaving:
		return answer{err: fmt.Errorf("%s is not being evicted", o.vm)}
	default:
		return u.withdraw(o.vm, e)
	}
}

// outage begins or ends the outage of the storage account.
func (u *up) outage(begins bool) answer {
	switch down := u.down.Swap(begins); {
	case down && begins:
		return answer{err: errors.New("storage is stopped already")}
	case down == begins:
		return answer{err: errors.New("storage is not stopped")}
	case begins:
		u.narrator.Say("The storage account answers no call any more: each connection is cut.")
		return answer{said: "Storage answers no call any more. lab start ends that."}
	}
	u.narrator.Say("The storage account answers again.")
	return answer{said: "Storage answers again."}
}

// present returns the names of the VMs that are not gone, in the order of starting.
func (u *up) present() []string {
	var names []string
	for n := range u.number {
		if name := u.vm(n + 1).Name; !u.gone[name] {
			names = append(names, name)
		}
	}
	return names
}

// evict announces an eviction.
func (u *up) evict(vm string) answer {
	id, err := u.local.Metadata.SimulateEviction(vm)
	if err != nil {
		return answer{err: err}
	}
	event, _ := u.local.Metadata.Event(id)
	u.leaving[vm] = eviction{id: id, announced: event.ScheduledAt, notBefore: event.NotBefore}
	u.narrator.Say("Eviction notice: Preempt of %s, which will be evicted at %s.", vm, clock(event.NotBefore))
	return answer{said: fmt.Sprintf("%s will be evicted at %s. lab withdraw %s withdraws that.", vm, clock(event.NotBefore), vm)}
}

// evictFromManager announces an eviction that the resource manager was asked for
// some time ago. If that fails it only prints why: as on Azure, the call has
// long been answered.
func (u *up) evictFromManager(vm string) {
	if a := u.control.give(context.Background(), actionEvict, vm); a.err != nil && !errors.Is(a.err, errEnding) {
		u.narrator.Say("The resource manager was asked to evict %s, but %v.", vm, a.err)
	}
}

// withdraw withdraws an announcement.
func (u *up) withdraw(vm string, e eviction) answer {
	if !u.local.Metadata.Withdraw(e.id) {
		return answer{err: fmt.Errorf("it is too late: %s is being taken away", vm)}
	}
	delete(u.leaving, vm)
	said := fmt.Sprintf("The eviction of %s is withdrawn.", vm)
	u.narrator.Say("%s", said)
	return answer{said: said}
}

// observe reports the VMs that have seen their notice, and removes VMs whose notice has
// ended.
func (u *up) observe(now time.Time) {
	for vm, e := range u.leaving {
		if at, ok := u.local.Metadata.VM(vm).FirstServed(e.id); ok && !e.reported {
			e.reported = true
			u.leaving[vm] = e
			u.narrator.Say("%s got the notice from its metadata service, %s after the announcement.", vm, text.Duration(at.Sub(e.announced)))
		}
		if !now.Before(e.notBefore) {
			u.remove(vm)
		}
	}
}

// remove removes an evicted VM and adds another. It kills the worker that lab up started, and does
// not end another process, which belongs to the person who started it.
func (u *up) remove(vm string) {
	next := u.replace(vm)
	if u.config.Workers == 0 {
		u.narrator.Say("%s has been evicted. On Azure its worker would have been killed: end it with kill -9. %s replaces it:", vm, next)
		u.commands.writeWorker(u.narrator, next)
		return
	}
	u.workers.kill(vm)
	u.narrator.Say("%s has been evicted, and its worker is killed. %s replaces it.", vm, next)
	u.startWorker(next)
}

// replace removes a VM, adds another to the scale set, and returns its name.
func (u *up) replace(vm string) (next string) {
	u.gone[vm] = true
	u.local.Metadata.RemoveVM(vm)
	if e, leaving := u.leaving[vm]; leaving {
		delete(u.leaving, vm)
		u.local.Metadata.Complete(e.id)
	}
	return u.newVM()
}

// clock formats a time of day.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }
