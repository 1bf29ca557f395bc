package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/storage/azure"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

var (
	// ErrBroken reports that a promise was broken.
	ErrBroken = errors.New("the run failed")

	errInterrupted = errors.New("interrupted; the promises were not checked")
)

// chaos is one run.
type chaos struct {
	config   Config
	narrator *text.Narrator
	folder   string // of logs, kinds file and scratch folders
	began    time.Time

	kindsFile string

	stage    *stage.Stage
	recorder *stage.Recorder // the stage's
	stores   *deployment.Stores

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand // of incidents
	present []*vm
	counts  counts
	faults  []string // such as a worker that exited unexpectedly

	incidents sync.WaitGroup
}

// counts are the incidents so far.
type counts struct {
	kills, beforeCall, afterCall, groups, freezes int

	evictions, withdrawn, notHandedOver int

	programs, duplicates int // jobs

	cuts [stage.Faults + 1]int // by fault; the last is VMs that were cut off
}

// Deaths are what kills cost the jobs that they hit, by their ledgers.
type Deaths struct {
	Runs   int           // of handlers, which ended with their workers
	Redone time.Duration // the mean work of such a run that is not in the outcome
	Hidden time.Duration // the mean time until the message of a killed worker is visible again
}

// Run lets incidents happen to workers as c describes, and prints a table of the events
// and the promises. The error wraps [ErrBroken] if a promise was broken. Run ends every
// process that it started before it returns.
func Run(ctx context.Context, c Config, out io.Writer) (deaths Deaths, err error) {
	if err := c.Validate(); err != nil {
		return deaths, err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	r := &chaos{
		config: c, narrator: text.NewNarrator(out), random: rand.New(rand.NewPCG(c.Seed, 0)),
	}
	if r.folder, err = os.MkdirTemp("", "spotworker-chaos-"); err != nil {
		return deaths, err
	}
	deaths, err = r.run(ctx)
	if err == nil && !c.Keep || ctx.Err() != nil {
		return deaths, errors.Join(err, os.RemoveAll(r.folder))
	}
	r.narrator.Say("The logs of the last workers are in %s.", r.folder)
	return deaths, err
}

func (r *chaos) run(ctx context.Context) (deaths Deaths, err error) {
	r.began = time.Now()
	if err := r.build(); err != nil {
		return deaths, err
	}
	defer func() { err = errors.Join(err, r.stage.Close()) }()
	if err := r.open(ctx); err != nil {
		if ctx.Err() != nil {
			return deaths, errInterrupted
		}
		return deaths, err
	}
	r.narrator.Say("Seed %d. %d workers with %d jobs at a time; one job takes about %s.", r.config.Seed, r.config.Workers,
		r.config.JobsAtOnce, r.config.JobTime)
	feeding, stopFeeding := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() { fed <- r.feed(feeding) }()
	played := r.play(ctx)
	took := time.Since(r.began)
	stopFeeding()
	if err := <-fed; err != nil {
		r.fault("putting jobs failed: %s", azure.Explain(err))
	}
	r.incidents.Wait()
	if played == nil {
		played = r.settle(ctx)
	}
	judged := time.Now()
	r.closeFleet(ctx)
	if ctx.Err() != nil {
		return deaths, errInterrupted
	}
	return r.report(ctx, took, judged, played)
}

// build builds the stage.
func (r *chaos) build() (err error) {
	if r.config.Worker == "" {
		if r.config.Worker, err = os.Executable(); err != nil {
			return err
		}
	}
	if r.kindsFile, err = writeKindsFile(r.folder, r.config.Worker); err != nil {
		return err
	}
	r.stage, err = stage.Open(stage.Config{
		Worker: r.config.Worker, Logs: r.folder, OnEnd: r.onEnd, Visibility: r.config.Visibility, ConnectionString: r.config.ConnectionString,
		Args: []string{
			WorkerCommand,
			fmt.Sprintf("--concurrency=%d", r.config.JobsAtOnce),
			labworker.Settings{Visibility: r.config.Visibility}.Argument(),
			"--checkpoint-interval=" + r.config.CheckpointInterval.String(),
			"--scratch=" + filepath.Join(r.folder, "scratch"),
		},
	})
	if err == nil {
		r.recorder = r.stage.Recorder
	}
	return err
}

// open prepares storage and starts the workers.
func (r *chaos) open(ctx context.Context) error {
	names := r.stage.Names
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: r.stage.ConnectionString, Version: "lab"})
	if err != nil {
		return err
	}
	r.stores = deployment.StoresOf(account, names)
	containers := map[string]*container.Client{}
	for _, name := range []string{names.Records, names.Payloads, names.Workers, names.Control, names.Outputs} {
		containers[name] = account.Container(name)
	}
	if err := producer.Create(ctx, r.stores.AllQueues(), containers); err != nil {
		return err
	}
	if err := r.requireEmpty(ctx); err != nil {
		return err
	}
	for i := range r.config.Workers {
		if err := r.addVM(r.config.hasPrograms(i)); err != nil {
			return errors.Join(err, r.stage.Fleet.Close(ctx))
		}
	}
	return nil
}

// requireEmpty refuses queues with messages: nothing is known of their jobs.
func (r *chaos) requireEmpty(ctx context.Context) error {
	for _, q := range r.stores.AllQueues() {
		n, err := q.Depth(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("queue %s has %d messages, perhaps of another run: give an empty storage account", q.Name(), n)
		}
	}
	return nil
}

// closeFleet stops the workers. A worker that does not drain is a fault.
func (r *chaos) closeFleet(ctx context.Context) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), lab.HandOver)
	defer cancel()
	if ctx.Err() != nil {
		cancel()
	}
	if err := r.stage.Fleet.Close(limit); err != nil && ctx.Err() == nil {
		r.fault("at the end: %v", err)
	}
}

// fault records a fault that no job shows.
func (r *chaos) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}
