package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// serve takes orders, and takes evicted VMs away when their time has come, until
// ctx ends.
func (u *up) serve(ctx context.Context) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		select {
		case o := <-u.control.orders:
			o.answer <- u.obey(o)
		case now := <-ticker.C:
			u.observe(now)
		case <-ctx.Done():
			return
		}
	}
}

func (u *up) obey(o order) answer {
	if !slices.Contains(u.present(), o.vm) {
		return answer{err: fmt.Errorf("there is no VM %q here; there are %s", o.vm, strings.Join(u.present(), ", "))}
	}
	e, leaving := u.leaving[o.vm]
	switch {
	case o.verb == verbEvict && leaving:
		return answer{err: fmt.Errorf("%s is being evicted already; it is gone at %s", o.vm, clock(e.notBefore))}
	case o.verb == verbEvict:
		return u.evict(o.vm)
	case !leaving:
		return answer{err: fmt.Errorf("%s is not being evicted", o.vm)}
	default:
		return u.withdraw(o.vm, e)
	}
}

// present returns the names of the VMs that there are, in the order of starting.
func (u *up) present() []string {
	var names []string
	for n := range u.number {
		if name := u.vmName(n + 1); !u.gone[name] {
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
	u.say("Eviction notice: Preempt of %s, which is gone at %s.", vm, clock(event.NotBefore))
	return answer{said: fmt.Sprintf("%s is to be evicted: it is gone at %s. lab withdraw %s stops that.", vm, clock(event.NotBefore), vm)}
}

// evictAsCalled announces the eviction that the resource manager was asked for
// some time ago. That it cannot be done any more concerns nobody but people: the
// call was answered long since, as on Azure.
func (u *up) evictAsCalled(vm string) {
	if a := u.control.give(context.Background(), verbEvict, vm); a.err != nil && !errors.Is(a.err, errEnding) {
		u.say("The resource manager was asked to evict %s, but %v.", vm, a.err)
	}
}

// withdraw takes an announcement back.
func (u *up) withdraw(vm string, e eviction) answer {
	if !u.local.Metadata.Withdraw(e.id) {
		return answer{err: fmt.Errorf("it is too late: %s is being taken away", vm)}
	}
	delete(u.leaving, vm)
	u.say("The eviction of %s is withdrawn.", vm)
	return answer{said: fmt.Sprintf("The eviction of %s is withdrawn.", vm)}
}

// observe tells what became of announcements since the last time.
func (u *up) observe(now time.Time) {
	for vm, e := range u.leaving {
		if at, ok := u.local.Metadata.VM(vm).FirstServed(e.id); ok && !e.seen {
			e.seen = true
			u.leaving[vm] = e
			u.say("%s asked its metadata service and was told, %s after the announcement.", vm, rounded(at.Sub(e.announced)))
		}
		if !now.Before(e.notBefore) {
			u.takeAway(vm, e)
		}
	}
}

// takeAway ends a VM, as far as that can be done without ending a process of
// somebody else's, and adds one in its place.
func (u *up) takeAway(vm string, e eviction) {
	delete(u.leaving, vm)
	u.gone[vm] = true
	u.local.Metadata.RemoveVM(vm)
	u.local.Metadata.Complete(e.id)
	next := u.newVM()
	u.say("%s is gone: on Azure its worker would be, too; end it with kill -9. %s takes its place:", vm, next)
	u.commands.writeWorker(u, next)
}

// clock is a time of day for people.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }
