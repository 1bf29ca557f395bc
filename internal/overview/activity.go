package overview

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/fleet/activity"
)

// Window is how far back the figures of heartbeats reach: what workers did in the last ten
// minutes before their last heartbeats.
const Window = 10 * time.Minute

// Activity is the work of a fleet's workers in the last ten minutes.
type Activity struct {
	// Known is how many workers report their activity, and Unknown how many do not.
	Known, Unknown int

	// Slots is how many jobs the workers that are alive run at once, and Handler, Around,
	// Idle and Closed how all slots spent their time.
	Slots                         int
	Handler, Around, Idle, Closed time.Duration

	// Kinds are the kinds whose jobs ran, the kinds with most runs first.
	Kinds []Kind

	// VMs are the machines. VMs that need a look come first.
	VMs []VM
}

// Kind is the activity of the jobs of a kind.
type Kind struct {
	client.KindActivity
	P50, P95, P99 time.Duration // of the run times of the jobs done; 0 for none
}

// FailedShare returns which part of the runs that ended failed.
func FailedShare(k client.KindActivity) float64 { return share(k.Failed, k.Done) }

func share(failed, done int) float64 {
	if failed+done == 0 {
		return 0
	}
	return float64(failed) / float64(failed+done)
}

// Kept returns which part of the time of handlers that ended has its result or its state
// recorded: goodput. ok is false if none ended.
func Kept(k client.KindActivity) (part float64, ok bool) {
	kept, lost := k.Committed+k.HandedOver, k.FailedTime+k.Redone
	if kept+lost <= 0 {
		return 0, false
	}
	return float64(kept) / float64(kept+lost), true
}

// HandlerTime returns the time of handlers that ended, with any outcome.
func HandlerTime(k client.KindActivity) time.Duration {
	return k.Committed + k.HandedOver + k.FailedTime + k.Redone
}

// All returns what happened to the jobs of all kinds.
func (a *Activity) All() client.KindActivity {
	all := client.KindActivity{}
	for _, k := range a.Kinds {
		all = added(all, k.KindActivity)
	}
	return all
}

func added(a, b client.KindActivity) client.KindActivity {
	a.Done += b.Done
	a.Failed += b.Failed
	a.Committed += b.Committed
	a.HandedOver += b.HandedOver
	a.FailedTime += b.FailedTime
	a.Redone += b.Redone
	return a
}

// VM is a machine with its workers. A worker whose VM is not known counts as one.
type VM struct {
	Name    string
	Workers []client.Worker
	Life    client.Life // of the worker that is best off

	// Known says that a worker reports its activity; then Done and Failed count jobs that
	// were committed and runs that failed.
	Known        bool
	Done, Failed int

	// Fails are the kinds of which nearly all runs fail on this VM, or far more than on
	// other VMs.
	Fails []client.KindActivity
}

// failsFrom is how many runs of a kind have to fail on a VM before it is said to fail nearly
// all: then all but a fifth fail, and elsewhere at most half.
const failsFrom = 3

// Activity adds up the workers' activity. Workers that ended or fell silent count while
// their last heartbeat is of the last ten minutes.
func (s *Snapshot) Activity() Activity {
	a := Activity{}
	kinds, times := map[string]client.KindActivity{}, map[string]map[time.Duration]int{}
	vms := map[string]*VM{}
	for _, w := range s.Workers {
		name := cmp.Or(w.VM, w.Name)
		if vms[name] == nil {
			vms[name] = &VM{Name: name, Life: w.Life()}
		}
		vm := vms[name]
		vm.Workers, vm.Life = append(vm.Workers, w), min(vm.Life, w.Life())
		switch {
		case w.Age > Window:
			continue
		case w.Activity == nil:
			if w.Life() == client.Alive {
				a.Unknown++
			}
			continue
		}
		did := w.Activity
		a.Known++
		if w.Life() == client.Alive {
			a.Slots += did.Slots
		}
		a.Handler, a.Around, a.Idle, a.Closed = a.Handler+did.Handler, a.Around+did.Around, a.Idle+did.Idle, a.Closed+did.Closed
		vm.Known = true
		for _, k := range did.Kinds {
			vm.Done, vm.Failed = vm.Done+k.Done, vm.Failed+k.Failed
			kinds[k.Kind] = added(kinds[k.Kind], k)
			if times[k.Kind] == nil {
				times[k.Kind] = map[time.Duration]int{}
			}
			for _, d := range k.Durations {
				times[k.Kind][d.UpTo] += d.Count
			}
		}
	}
	for name, k := range kinds {
		k.Kind = name
		for _, upTo := range slices.Sorted(maps.Keys(times[name])) {
			k.Durations = append(k.Durations, client.DurationCount{UpTo: upTo, Count: times[name][upTo]})
		}
		a.Kinds = append(a.Kinds, Kind{k, quantile(k.Durations, 0.5), quantile(k.Durations, 0.95), quantile(k.Durations, 0.99)})
	}
	slices.SortFunc(a.Kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.Done+b.Failed, a.Done+a.Failed), strings.Compare(a.Kind, b.Kind))
	})
	a.VMs = judged(vms, kinds)
	return a
}

// judged returns the VMs, the ones with trouble first.
func judged(vms map[string]*VM, kinds map[string]client.KindActivity) (all []VM) {
	had, broken := map[string]int{}, map[string]int{} // VMs that ran a kind, and VMs whose circuit breaker for it is open
	for _, vm := range vms {
		for _, k := range vm.kinds() {
			had[k.Kind]++
			if vm.breaks(k.Kind) {
				broken[k.Kind]++
			}
		}
	}
	for _, vm := range vms {
		vm.Fails = vm.failsAlone(kinds, func(kind string) bool { return vm.breaks(kind) && 2*broken[kind] <= had[kind] })
		all = append(all, *vm)
	}
	slices.SortFunc(all, func(a, b VM) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(share(b.Failed, b.Done), share(a.Failed, a.Done)),
			strings.Compare(a.Name, b.Name))
	})
	return all
}

// rank orders VMs: VMs that need a look come first, ended VMs last.
func (v *VM) rank() int {
	switch {
	case v.Life == client.Ended:
		return 3
	case len(v.Fails) > 0:
		return 0
	case v.Life == client.Silent:
		return 1
	}
	return 2
}

// breaks reports whether the circuit breaker of a kind is open on a live worker of the VM.
func (v *VM) breaks(kind string) bool {
	return slices.ContainsFunc(v.Workers, func(w client.Worker) bool {
		return w.Life() == client.Alive && w.Findings != nil && slices.Contains(strings.Split(w.Findings.Trouble.Broken, ","), kind)
	})
}

// failsAlone compares a VM with the others that ran jobs of its kinds. fleet is the
// activity of all VMs together; breaks reports whether the kind's circuit breaker is open here,
// and not on most others.
func (v *VM) failsAlone(fleet map[string]client.KindActivity, breaks func(kind string) bool) (fails []client.KindActivity) {
	if v.Life == client.Ended {
		return nil
	}
	for _, k := range v.kinds() {
		done, failed := fleet[k.Kind].Done-k.Done, fleet[k.Kind].Failed-k.Failed // elsewhere
		nearlyAll := k.Failed >= failsFrom && k.Failed >= 4*k.Done && done > 0 && share(failed, done) <= 0.5
		here, elsewhere := activity.Runs{Done: k.Done, Failed: k.Failed}, activity.Runs{Done: done, Failed: failed}
		if nearlyAll || breaks(k.Kind) || activity.StandsOut(here, elsewhere) {
			fails = append(fails, k)
		}
	}
	return fails
}

// kinds returns what happened to the jobs of each kind on the VM, by name.
func (v *VM) kinds() []client.KindActivity {
	own := map[string]client.KindActivity{}
	for _, w := range v.Workers {
		if w.Activity == nil || w.Age > Window {
			continue
		}
		for _, k := range w.Activity.Kinds {
			sum := added(own[k.Kind], k)
			sum.Kind = k.Kind
			own[k.Kind] = sum
		}
	}
	return slices.SortedFunc(maps.Values(own), func(a, b client.KindActivity) int { return strings.Compare(a.Kind, b.Kind) })
}

// quantile returns the duration within which the q-th part of the counted ones is.
func quantile(counts []client.DurationCount, q float64) time.Duration {
	n := 0.0
	for _, c := range counts {
		n += float64(c.Count)
	}
	rank := q * n
	for _, c := range counts {
		if rank -= float64(c.Count); rank <= 0 {
			return c.UpTo
		}
	}
	return 0
}

// ToClear estimates how long a queue takes until it is empty if nothing is added: its
// messages that no worker runs yet, without jobs of kinds that no worker has, at the rate at which the workers that take from it
// have ended jobs. If a worker takes from several queues of jobs, each counts for an
// equal part of its work. ok is false if there is nothing to clear, or no such job
// ended.
func (s *Snapshot) ToClear(q client.Queue) (left time.Duration, ok bool) {
	active, perSecond := 0.0, 0.0
	shards := 1.0
	if slices.Contains(s.Queues.Shards, q) {
		shards = float64(len(s.Queues.Shards))
	}
	for _, w := range s.Workers {
		if w.Life() != client.Alive || w.Activity == nil || !slices.Contains(w.Queues, q.Name) {
			continue
		}
		active += float64(w.Jobs) / shards
		did, done := w.Activity, 0
		for _, k := range did.Kinds {
			done += k.Done
		}
		if seconds := (did.Handler + did.Around + did.Idle + did.Closed).Seconds() / float64(did.Slots); seconds > 0 {
			perSecond += float64(done) / seconds / shards
		}
	}
	for _, lack := range WithoutWorker(s.Workers) {
		active += float64(lack.Jobs) / shards
	}
	waiting := float64(q.Messages) - active
	if waiting <= 0 || perSecond <= 0 {
		return 0, false
	}
	return time.Duration(waiting / perSecond * float64(time.Second)), true
}
