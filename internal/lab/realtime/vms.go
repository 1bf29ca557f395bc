package realtime

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/retry"
)

// vmName returns the name of a VM of the plan.
func vmName(n int) string { return lab.VMName(n + 1) }

// sleep waits until a moment of the replay. It reports whether the replay is still on then.
func (r *realtime) sleep(ctx context.Context, until time.Duration) bool {
	return retry.Sleep(ctx, time.Until(r.began.Add(until))) == nil
}

// live lets a VM come, start its worker after the boot, be announced to go, and go.
func (r *realtime) live(ctx context.Context, n int, v replay.VM) error {
	if !r.sleep(ctx, v.From) {
		return nil
	}
	name, told := vmName(n), v.Told
	if r.plan.Scenario.Policy.Deaf {
		told = v.End
	}
	r.came(n, v)
	r.local.AddVM(imds.VM{Name: name, ScaleSet: lab.ScaleSet})
	var notice string
	var noticed sync.WaitGroup
	if told < v.End {
		noticed.Go(func() {
			if r.sleep(ctx, told) {
				notice = r.tell(name, v.End)
			}
		})
	}
	var worker *lab.VM
	var err error
	if v.Ready < v.End && r.sleep(ctx, v.Ready) {
		worker, err = r.fleet.Start(name)
	}
	over := !r.sleep(ctx, v.End)
	noticed.Wait()
	if over || err != nil {
		return err
	}
	r.remove(n, worker)
	r.local.Metadata.Complete(notice)
	return nil
}

// came records that a VM has come.
func (r *realtime) came(n int, v replay.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.From = time.Since(r.began)
	r.vms[n], r.lanes[vmName(n)] = v, v.Lane
}

// tell announces the end of a VM, and returns the id of the event.
func (r *realtime) tell(name string, end time.Duration) string {
	r.mu.Lock()
	r.told[name] = true
	r.mu.Unlock()
	return r.local.Metadata.Schedule(imds.Event{Type: "Preempt", Resources: []string{name}, NotBefore: r.began.Add(end)})
}

// remove ends a VM and its worker, which is nil if the VM did not live to its end of the boot.
func (r *realtime) remove(n int, worker *lab.VM) {
	name, at := vmName(n), time.Now()
	if worker != nil {
		worker.Kill()
		r.recorder.gone(name, at)
	}
	r.local.Metadata.RemoveVM(name)
	_ = os.RemoveAll(filepath.Join(r.scratch(), name)) // or with the folder of the replay
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vms[n]
	v.End = at.Sub(r.began)
	r.vms[n] = v
}

// puts is how many jobs are put at a time.
const puts = 16

// putAll puts the jobs, each at its time.
func (r *realtime) putAll(ctx context.Context, fail func(error)) {
	spec, err := r.spec()
	if err != nil {
		fail(err)
		return
	}
	var all sync.WaitGroup
	places := make(chan struct{}, puts)
	for n, at := range r.plan.Jobs {
		if !r.sleep(ctx, at) {
			break
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			id, err := r.client.Put(ctx, spec)
			if err != nil {
				if ctx.Err() == nil {
					fail(fmt.Errorf("put a job: %w", err))
				}
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.jobs[id] = n
		})
	}
	all.Wait()
}

// spec returns the job that is put.
func (r *realtime) spec() (client.Spec, error) {
	payload, err := json.Marshal(work{Work: r.plan.Scenario.Work, Never: r.plan.Scenario.Policy.Never})
	return client.Spec{Kind: kind, Payload: payload}, err
}
