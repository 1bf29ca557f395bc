package lab

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lab/screen"
)

// watchEvery is how often the fleet is shown to whoever watches.
const watchEvery = 100 * time.Millisecond

// watch shows the fleet until stopped; stop returns when the stage is empty.
func (d *demo) watch(ctx context.Context) (stop func()) {
	if d.Stage == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for {
			d.Stage.Show(d.scene(time.Now()))
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		showing.Wait()
		d.Stage.End()
	}
}

// scene is the fleet as it stands.
func (d *demo) scene(now time.Time) screen.Scene {
	s := screen.Scene{Elapsed: now.Sub(d.start)}
	for _, m := range d.local.Storage.Messages(d.ledger.names.Queue) {
		if m.Visible {
			s.Visible++
		} else {
			s.Hidden++
		}
	}
	s.Poison = len(d.local.Storage.Messages(d.ledger.names.Poison))
	vms := d.fleet.All()
	d.ledger.look(func(f *facts) {
		s.Jobs, s.Committed = len(f.good()), f.committed()
		for _, vm := range vms {
			if shown, ok := f.show(vm, now); ok {
				s.VMs = append(s.VMs, shown)
			}
		}
	})
	return s
}

// show is a VM on the screen. A lost one is shown as long as its jobs wait for
// another worker.
func (f *facts) show(name string, now time.Time) (screen.VM, bool) {
	fate := f.fates[name]
	vm := screen.VM{Name: name, State: cmp.Or(f.states[name], "booting")}
	switch {
	case fate.kind == killed, fate.kind == evicted && fate.gone:
		return f.showLost(vm, fate, now)
	case fate.kind == frozen && fate.thawed.IsZero():
		vm, _ := f.showLost(vm, fate, now)
		return vm, true
	case fate.kind == evicted:
		vm.State, vm.Mood = "evicted", screen.Leaving
	}
	for _, h := range f.inHand(name) {
		vm.Jobs = append(vm.Jobs, screen.Job{Name: baseName(h.Blob), Size: h.Size, Saved: h.Saved, Hashed: h.Hashed})
	}
	if len(vm.Jobs) == 0 {
		vm.Note = "no job in hand"
	}
	return vm, true
}

// showLost shows a VM that does not work any more, and what waits for others.
func (f *facts) showLost(vm screen.VM, fate fate, now time.Time) (screen.VM, bool) {
	vm.Mood, vm.State = screen.Gone, map[fateKind]string{killed: "killed", evicted: "gone", frozen: "frozen"}[fate.kind]
	waiting := 0
	for _, s := range f.held(vm.Name, fate.at) {
		if _, taken := f.resumed(s.job, vm.Name, fate.at); !taken && f.commits(s.job) == 0 {
			waiting++
		}
	}
	vm.Note = fmt.Sprintf("%.0f s ago; %s for another worker", now.Sub(fate.at).Seconds(), plural(waiting, "job waits", "jobs wait"))
	return vm, waiting > 0
}
