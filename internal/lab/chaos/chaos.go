package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

var (
	// ErrBroken says that the run ended and a promise did not hold.
	ErrBroken = errors.New("the run failed")

	errInterrupted = errors.New("interrupted; nothing can be said about the promises")
)

// chaos is one run.
type chaos struct {
	Config
	out    io.Writer
	folder string // of logs, kinds file and scratch folders
	began  time.Time
	over   chan struct{} // closed when the run is

	kindsFile string

	local     *lab.Local
	fleet     *lab.Fleet
	stores    *cli.Stores
	transport *http.Transport
	tally     *tally

	mu      sync.Mutex // guards what follows
	random  *rand.Rand // of incidents
	present []*vm
	started int
	counts  counts
	faults  []string // of the run itself, such as a worker that ended by itself

	incidents sync.WaitGroup
}

// counts are the incidents so far.
type counts struct {
	kills, beforeCall, afterCall, groups, freezes int

	evictions, withdrawn, notHandedOver int

	cuts [faults + 1]int // by fault; the last is a way that was cut
}

// Run kills workers as c says, and tells out in the end what became of the jobs.
// The error wraps [ErrBroken] if a promise did not hold. Run ends every process
// that it started, in any case and before it returns.
func Run(ctx context.Context, c Config, out io.Writer) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	r := &chaos{Config: c, out: out, tally: newTally(c.Visibility), over: make(chan struct{}), random: rand.New(rand.NewPCG(c.Seed, 0)), transport: upstream()}
	if r.folder, err = os.MkdirTemp("", "spotworker-chaos-"); err != nil {
		return err
	}
	err = r.run(ctx)
	close(r.over)
	r.transport.CloseIdleConnections()
	if err == nil && !c.Keep || ctx.Err() != nil {
		return errors.Join(err, os.RemoveAll(r.folder))
	}
	r.say("The logs of the last workers are in %s.", r.folder)
	return err
}

func (r *chaos) run(ctx context.Context) (err error) {
	r.began = time.Now()
	if r.local, err = lab.StartLocal(lab.LocalConfig{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.local.Close()) }()
	if r.ConnectionString == "" {
		r.ConnectionString = r.local.ConnectionString
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	r.say("Seed %d. %d workers, %d jobs at once each, one job about %s.", r.Seed, r.Workers, r.JobsAtOnce, r.JobTime)
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
		return errInterrupted
	}
	return r.report(ctx, took, judged, played)
}

// open prepares storage and starts the workers.
func (r *chaos) open(ctx context.Context) error {
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return err
	}
	account, err := azure.Connect(azure.Config{ConnectionString: r.ConnectionString, Version: "lab"})
	if err != nil {
		return err
	}
	r.stores = cli.StoresOf(account, names)
	containers := map[string]*container.Client{}
	for _, name := range []string{names.Records, names.Payloads, names.Workers} {
		containers[name] = account.Container(name)
	}
	if err := producer.Create(ctx, []*queue.Queue{r.stores.Queue, r.stores.OnDemand, r.stores.Poison}, containers); err != nil {
		return err
	}
	if err := r.demandEmpty(ctx); err != nil {
		return err
	}
	if r.Worker == "" {
		if r.Worker, err = os.Executable(); err != nil {
			return err
		}
	}
	if r.kindsFile, err = writeKindsFile(r.folder, r.Worker); err != nil {
		return err
	}
	r.fleet = lab.NewFleet(lab.FleetConfig{
		Worker: r.Worker, Endpoint: r.local.Endpoint, Logs: r.folder, OnEnd: r.onEnd, StorageFor: r.storageFor, ArgsFor: r.argsFor,
		Args: []string{
			WorkerCommand,
			fmt.Sprintf("--concurrency=%d", r.JobsAtOnce),
			"--visibility=" + r.Visibility.String(),
			"--checkpoint-interval=" + r.CheckpointInterval.String(),
			"--scratch=" + filepath.Join(r.folder, "scratch"),
		},
	})
	for i := range r.Workers {
		if err := r.addVM(r.hasPrograms(i)); err != nil {
			return errors.Join(err, r.fleet.Close(ctx))
		}
	}
	return nil
}

// demandEmpty refuses queues on which something is left: nothing could be said
// about a job of somebody else's.
func (r *chaos) demandEmpty(ctx context.Context) error {
	for _, q := range []*queue.Queue{r.stores.Queue, r.stores.OnDemand, r.stores.Poison} {
		n, err := q.Depth(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("queue %s has %d messages, of another run perhaps: give an empty storage account", q.Name(), n)
		}
	}
	return nil
}

// closeFleet asks the workers that are left to hand over, which they must.
func (r *chaos) closeFleet(ctx context.Context) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), lab.HandOver)
	defer cancel()
	if ctx.Err() != nil {
		cancel()
	}
	if err := r.fleet.Close(limit); err != nil && ctx.Err() == nil {
		r.fault("at the end: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.present {
		v.door.close()
	}
	r.present = nil
}

// fault notes that something went wrong which no job shows.
func (r *chaos) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// say prints one thing that happened.
func (r *chaos) say(format string, args ...any) {
	fmt.Fprintf(r.out, "%7.1f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}
