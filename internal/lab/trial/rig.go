package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/labworker"
)

// The workers of a trial record checkpoints as often as they collect them, and the jobs of
// a dead VM return after the shortest time that there is.
const (
	checkpointInterval = 250 * time.Millisecond
	visibility         = 3 * time.Second

	// visibilityThere is the default visibility of a worker on Azure.
	visibilityThere = 30 * time.Second
)

// rig is the local Azure of a trial, and its VMs.
type rig struct {
	folder   string
	local    *lab.Local
	client   *client.Client
	fleet    *lab.Fleet
	recorder *recorder
	number   int // of the last VM
	vms      map[string]*machine
	outside  *outside // nil where no namespace can be had
}

// machine is a simulated VM with a scratch folder of its own.
type machine struct {
	*lab.VM

	name, scratch string
	unwatch       func()
	watched       context.CancelFunc // ends the look at processes
	watching      chan struct{}      // closed when that has ended
}

// openRig starts the local Azure, without a VM. A worker that ends unexpectedly fails the
// trial.
func openRig(ctx context.Context, folder, worker, kindsFile string, rec *recorder, apart *outside, fail func(error)) (r *rig, err error) {
	r = &rig{folder: folder, recorder: rec, vms: map[string]*machine{}, outside: apart}
	command := []string{worker}
	if apart != nil {
		command = apart.command(worker)
	}
	if r.local, err = lab.StartLocal(lab.LocalConfig{}); err != nil {
		return nil, err
	}
	r.client, err = client.Open(client.Options{ConnectionString: r.local.Storage.ConnectionString(), Transport: r.local.Storage.Transport(),
		Name: "lab"})
	if err == nil {
		err = r.client.Create(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.local.Close())
	}
	r.fleet = lab.NewFleet(lab.FleetConfig{
		Worker: command[0], ConnectionString: r.local.ConnectionString, Endpoint: r.local.Endpoint, Logs: folder,
		Args: append(command[1:],
			labworker.Command, "--kinds-file="+kindsFile, "--concurrency=1", labworker.Settings{Visibility: visibility}.Argument(),
			"--checkpoint-interval="+checkpointInterval.String(),
		),
		ArgsFor: func(vm string) []string { return []string{"--scratch=" + r.scratch(vm)} },
		OnLine:  rec.onLine,
		OnEnd: func(vm *lab.VM, err error) {
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			fail(fmt.Errorf("worker %s exited unexpectedly (%s), see %s; --keep keeps it", vm.Name, how, vm.LogFile))
		},
	})
	return r, nil
}

func (r *rig) scratch(vm string) string { return filepath.Join(r.folder, "scratch", vm) }

// newVM starts a VM.
func (r *rig) newVM() error {
	r.number++
	name := lab.VMName(r.number)
	m := &machine{name: name, scratch: r.scratch(name), watching: make(chan struct{})}
	if err := os.MkdirAll(m.scratch, 0o700); err != nil {
		return err
	}
	w := &watcher{vm: name, root: m.scratch, recorder: r.recorder}
	var err error
	if m.unwatch, err = watchFiles(m.scratch, w.tell); err != nil {
		return fmt.Errorf("observe the files of %s: %w", name, err)
	}
	r.local.Metadata.AddVM(imds.VM{Name: name, ScaleSet: lab.ScaleSet})
	if m.VM, err = r.fleet.Start(name); err != nil {
		m.unwatch()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.watched = cancel
	go r.watchProcesses(ctx, m)
	r.vms[name] = m
	return nil
}

// processEvery is the time between two looks at the program's processes.
const processEvery = 100 * time.Millisecond

// watchProcesses records the program's processes that leave its group.
func (r *rig) watchProcesses(ctx context.Context, m *machine) {
	defer close(m.watching)
	if !observesProcesses {
		return
	}
	ticker := time.NewTicker(processEvery)
	defer ticker.Stop()
	programs := map[*programRun]int{}
	var before map[int]child // strays of the last look: a process that is just ending is none
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var now *programRun
		r.recorder.look(func(*course) { now = r.recorder.running(m.name, false) })
		if now == nil {
			continue
		}
		all := processesOf(m.scratch)
		if programs[now] == 0 {
			programs[now] = leader(all)
		}
		found := strays(all, programs[now])
		maps.DeleteFunc(before, func(pid int, p child) bool { return found[pid].born != p.born })
		if programs[now] != 0 && len(before) > 0 {
			r.recorder.see(func() { maps.Copy(now.Strays, before) })
		}
		before = found
	}
}

// survivorsAfter is how long after the job has left the worker its processes may run.
const survivorsAfter = 300 * time.Millisecond

// sweep ends the processes that a program has left behind, and returns them.
func (m *machine) sweep() map[int]child {
	left := processesOf(m.scratch)
	for _, p := range left {
		p.end()
	}
	return left
}

// remove kills a VM's worker and the program's remaining processes, as the end of a VM
// does. The job's files are gone.
func (r *rig) remove(m *machine) {
	m.Kill()
	r.recorder.gone(m.name, time.Now())
	r.local.Metadata.RemoveVM(m.name)
	m.sweep()
	r.forget(m)
}

func (r *rig) forget(m *machine) {
	m.watched()
	<-m.watching
	m.unwatch()
	delete(r.vms, m.name)
	_ = os.RemoveAll(m.scratch) // or with the trial's folder
}

// close ends all VMs and the local Azure.
func (r *rig) close(drain bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), lab.HandOver)
	defer cancel()
	if !drain {
		cancel()
	}
	_ = r.fleet.Close(ctx) // a worker that does not drain is killed; the trial is over
	for _, m := range r.vms {
		m.sweep()
		r.forget(m)
	}
	return r.local.Close()
}
