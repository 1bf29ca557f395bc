package realtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/replay"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

var errInterrupted = errors.New("interrupted; all processes have ended")

// realtime is one replay.
type realtime struct {
	config   Config
	plan     *replay.Plan
	narrator *text.Narrator
	folder   string // of logs and scratch folders
	local    *lab.Local
	client   *client.Client
	fleet    *lab.Fleet
	recorder *recorder
	began    time.Time

	mu    sync.Mutex
	vms   map[int]replay.VM // that came, as they lived, by number in the plan
	lanes map[string]int    // by name of a VM
	told  map[string]bool
	jobs  map[string]int // numbers, by id
}

// Run replays a scenario with real workers, and returns the report. It writes its progress to out. If it
// fails, it keeps the workers' logs and names their folder. It ends every process that it started before
// it returns.
func Run(ctx context.Context, c Config, out io.Writer) (report *replay.Report, err error) {
	r := &realtime{config: c, narrator: text.NewNarrator(out), vms: map[int]replay.VM{},
		lanes: map[string]int{}, told: map[string]bool{}, jobs: map[string]int{}}
	if r.plan, err = c.plan(); err != nil {
		return nil, err
	}
	if r.folder, err = os.MkdirTemp("", "spotworker-replay-"); err != nil {
		return nil, err
	}
	r.announce()
	report, err = r.run(ctx)
	switch {
	case ctx.Err() != nil:
		report, err = nil, errInterrupted
	case err != nil:
		r.narrator.Say("The workers' logs are in %s.", r.folder)
		return nil, errors.Join(err, sandbox.RemoveTree(r.scratch()))
	}
	return report, errors.Join(err, sandbox.RemoveTree(r.folder))
}

func (r *realtime) scratch() string { return filepath.Join(r.folder, "scratch") }

// announce says how long the replay takes.
func (r *realtime) announce() {
	length := r.plan.Scenario.For.Duration
	r.narrator.Say("Real processes: at most %s, until %s. %s at a time, %d in all; %s. Ctrl-C ends all processes.", replay.Brief(length),
		time.Now().Add(length).Format(time.TimeOnly), text.Plural(r.plan.Lanes, "VM"), len(r.plan.VMs), text.Plural(len(r.plan.Jobs), "job"))
}

func (r *realtime) run(ctx context.Context) (report *replay.Report, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if r.local, err = lab.StartLocal(lab.LocalConfig{Latency: callTime}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.local.Close()) }()
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return nil, err
	}
	r.client, err = client.Open(client.Options{ConnectionString: r.local.Storage.ConnectionString(), Transport: r.local.Storage.Transport(),
		Name: "lab"})
	if err == nil {
		err = r.client.Create(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.recorder = newRecorder(r.local.Storage, names, fail)
	r.local.Storage.OnResult(r.recorder.onResult)
	config, err := r.fleetConfig(fail)
	if err != nil {
		return nil, err
	}
	r.fleet = lab.NewFleet(config)
	until := r.play(ctx, fail)
	ended, end := context.WithCancel(context.Background())
	end() // the rest is not part of the replay: the workers are killed
	_ = r.fleet.Close(ended)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return r.measure(until), nil
}

// measure makes the report.
func (r *realtime) measure(until time.Time) *replay.Report {
	m := measured{plan: r.plan, began: r.began, until: until, lanes: r.lanes, jobs: r.jobs}
	if !r.plan.Scenario.Work.Beside {
		m.hold = hold(r.plan.Scenario.Work)
	}
	var vms []replay.VM
	for n := range r.plan.VMs {
		v, came := r.vms[n]
		if !came {
			continue
		}
		times, told := r.recorder.vms[vmName(n)], r.told[vmName(n)]
		v.Ready, v.Seen = v.End, v.End // unless its worker got so far
		if !times.ready.IsZero() {
			v.Ready = m.since(times.ready)
		}
		if told && !times.seen.IsZero() {
			v.Seen = min(v.End, m.since(times.seen))
		}
		vms = append(vms, v)
	}
	return r.plan.Report(vms, m.runs(r.recorder), r.recorder.calls)
}

// fleetConfig says how the workers are started.
func (r *realtime) fleetConfig(fail func(error)) (c lab.FleetConfig, err error) {
	program := r.config.Worker
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return c, err
		}
	}
	s := r.plan.Scenario
	args := []string{WorkerCommand, fmt.Sprintf("--concurrency=%d", s.Fleet.Slots),
		labworker.Settings{Visibility: s.Policy.Visibility.Duration, EvictionRate: s.Policy.Rate}.Argument()}
	if s.Policy.Interval.Duration > 0 {
		args = append(args, "--checkpoint-interval="+s.Policy.Interval.String())
	}
	return lab.FleetConfig{
		Worker: program, ConnectionString: r.local.ConnectionString, Endpoint: r.local.Endpoint, Logs: r.folder, Args: args,
		ArgsFor: func(vm string) []string { return []string{"--scratch=" + filepath.Join(r.scratch(), vm)} },
		OnLine:  r.recorder.onLine,
		OnEnd: func(vm *lab.VM, err error) {
			r.mu.Lock()
			told := r.told[vm.Name]
			r.mu.Unlock()
			if err != nil || !told { // after a notice a worker may exit
				how := "exit status 0"
				if err != nil {
					how = err.Error()
				}
				fail(fmt.Errorf("worker %s exited unexpectedly (%s), see %s", vm.Name, how, vm.LogFile))
			}
		},
	}, nil
}

// play lets the VMs live and puts the jobs, until all are done or the time is over. It returns when
// that was.
func (r *realtime) play(ctx context.Context, fail func(error)) time.Time {
	r.began = time.Now()
	living, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for n, v := range r.plan.VMs {
		all.Go(func() {
			if err := r.live(living, n, v); err != nil {
				fail(err)
			}
		})
	}
	all.Go(func() {
		r.putAll(living, fail)
	})
	r.await(ctx)
	until := time.Now()
	r.recorder.close(until)
	end()
	all.Wait()
	return until
}

// await waits until all jobs are done or the time is over, and tells the progress.
func (r *realtime) await(ctx context.Context) {
	length := r.plan.Scenario.For.Duration
	over := time.After(time.Until(r.began.Add(length)))
	tell := time.NewTicker(max(10*time.Second, length/20))
	defer tell.Stop()
	for {
		done, changed := r.recorder.progress()
		if done == len(r.plan.Jobs) {
			return
		}
		select {
		case <-changed:
		case <-tell.C:
			r.narrator.Say("%d of %s done.", done, text.Plural(len(r.plan.Jobs), "job"))
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}
