package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/job"
)

// MaxConcurrency is the most jobs that one worker runs at once.
const MaxConcurrency = 10_000

// MaxChangeover is the longest that a moved job may wait for a worker.
const MaxChangeover = 24 * time.Hour

const defaultPayloadMemory = 1 << 30

// Config is what a worker is made of.
type Config struct {
	// Queue holds the jobs, Poison those that were dead-lettered.
	Queue, Poison *queue.Queue

	// OnDemand holds the jobs that VMs of regular priority are to finish. It is
	// required if TakeFrom names it, or MoveAfter or Changeover is set.
	OnDemand *queue.Queue

	// Shards are the queues of jobs, if there may be several; Queue is the first of them.
	// Where TakeFrom names it, jobs are taken from all of them. Optional.
	Shards *queue.Shards

	// TakeFrom are the queues that jobs are taken from, in turn. Default: Queue
	// alone.
	TakeFrom []*queue.Queue

	// More are the further accounts of the deployment; the fields above and below have the
	// queues and containers of the first. Optional.
	More []Account

	// Spread says over which accounts the follow-up jobs of handlers are spread. Required
	// with More.
	Spread *queue.Accounts

	// Blobs knows of which accounts calls for blobs fail, so that few jobs are begun
	// there. Optional.
	Blobs *outage.Blobs

	// MoveAfter is how many interruptions move a job that is released to
	// OnDemand, this one included; 0, the default, is never.
	MoveAfter int

	// Changeover is how long a job that moves waits there for a worker: for its VM to
	// start, and its state to be read. With it, a job that may miss its deadline moves to
	// OnDemand when it is released, when it is claimed again, or when a search finds that it
	// waits; 0, the default, is never. Up to [MaxChangeover].
	Changeover time.Duration

	// Payloads, Records and Workers are the containers beside them.
	Payloads *queue.Payloads
	Records  *checkpoint.Store
	Workers  *presence.Store

	// Control has what operators ask of all workers. Optional.
	Control *control.Store

	// Outputs stores the files that jobs store for others. Optional; without it no job
	// can.
	Outputs *outputs.Store

	// Logs keeps what jobs print and log themselves. Optional; without it nothing of
	// that is kept.
	Logs *joblog.Store

	// LogSize is how much is kept of each job's log, in bytes: [joblog.MinSize] …
	// [joblog.MaxSize]. Default: [joblog.DefaultSize].
	LogSize int

	// Inputs fetches the input files of jobs. Without it jobs that name any are left to
	// other workers.
	Inputs *inputs.Fetcher

	// Kinds are the handlers.
	Kinds job.Kinds

	// DefaultKind is the kind of messages that are not envelopes. Empty sends
	// them to the poison queue.
	DefaultKind string

	// Concurrency is how many jobs run at once, 1 … [MaxConcurrency].
	// Default: one per processor.
	Concurrency int

	// Visibility is the visibility timeout of active messages, and so the time after
	// which the jobs of a dead worker resume elsewhere. Messages are renewed every
	// third of it. Throttling makes it longer for a while. 3 s … 5 min, default 30 s.
	Visibility time.Duration

	// PayloadMemory bounds the bytes of payloads that all jobs hold at once, those
	// of up to 48 KiB in messages aside. A job waits in its slot until there is
	// room. At least [queue.MaxPayload], default 1 GiB.
	PayloadMemory int64

	// Policy says when a running job's record is written.
	// Default: [checkpoint.DefaultPolicy].
	Policy checkpoint.Policy

	// DrainBudget is how long a drain may take after SIGTERM; after a notice
	// the platform's time counts. Default 10 s.
	DrainBudget time.Duration

	// Metadata is the VM's metadata service; nil runs without notices.
	Metadata *preempt.Client

	// Acknowledge says which events are acknowledged early, once everything is saved
	// or released. Default: [events.AcknowledgeSelf].
	Acknowledge events.Acknowledge

	// Runtime is this worker's place among those of its VM; nil for the only one.
	Runtime *vmshare.Dir

	// Instance tells several workers on one VM apart. Default "0".
	Instance string

	// VMName is the VM's name as scheduled events have it, in place of what the
	// metadata service says. Empty asks the service.
	VMName string

	// Host is the worker's name where the metadata service does not give one.
	Host string

	// OnName is called when the worker has chosen its name, and OnVM when the metadata
	// service has given that of the VM. They must be quick. Optional.
	OnName, OnVM func(string)

	// Program is the worker's version, for people.
	Program string

	// BootID tells one start of the machine from the next. Optional.
	BootID string

	// Observer counts what happens, for metrics. Default: none.
	Observer Observer

	// Tracer records traces of the jobs. Default: none.
	Tracer *tracing.Tracer

	// Pressure counts the calls that storage refused because they came too fast, which
	// slow claims down. Optional: claims that are refused count in any case.
	Pressure *intake.Pressure

	// Jitter varies delays at random. Tests that must repeat exactly replace it.
	Jitter retry.Jitter

	// Loops get this worker's loops, whose health is that of the process.
	// Default: loops that are not checked.
	Loops *health.Loops

	// Log gets one line per thing that happened. Default: none.
	Log *slog.Logger
}

func (c *Config) setDefaults() {
	if len(c.TakeFrom) == 0 {
		c.TakeFrom = []*queue.Queue{c.Queue}
	}
	if c.Spread == nil && c.Shards != nil {
		c.Spread = queue.NewAccounts([]string{""}, []*queue.Shards{c.Shards})
	}
	if c.Concurrency == 0 {
		c.Concurrency = min(runtime.GOMAXPROCS(0), MaxConcurrency)
	}
	if c.Visibility == 0 {
		c.Visibility = renewal.DefaultVisibility
	}
	if c.PayloadMemory == 0 {
		c.PayloadMemory = defaultPayloadMemory
	}
	if c.LogSize == 0 {
		c.LogSize = joblog.DefaultSize
	}
	if c.Policy == (checkpoint.Policy{}) {
		c.Policy = checkpoint.DefaultPolicy()
	}
	if c.DrainBudget == 0 {
		c.DrainBudget = preempt.DrainBudget
	}
	if c.Acknowledge == "" {
		c.Acknowledge = events.AcknowledgeSelf
	}
	if c.Instance == "" {
		c.Instance = "0"
	}
	c.setObservers()
}

// setObservers sets what observes the worker and was not given.
func (c *Config) setObservers() {
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	if c.OnName == nil {
		c.OnName = func(string) {}
	}
	if c.OnVM == nil {
		c.OnVM = func(string) {}
	}
	if c.Loops == nil {
		c.Loops = &health.Loops{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Validate returns an error that says what to change, or nil.
func (c *Config) Validate() error {
	switch {
	case !c.hasStores():
		return errors.New("worker needs its queues and containers")
	case len(c.Kinds) == 0:
		return errors.New("worker has no kind of job to do: give it at least one handler")
	case c.Concurrency < 0 || c.Concurrency > MaxConcurrency:
		return fmt.Errorf("concurrency %d is out of range: give 1 to %d, or 0 for one job per processor", c.Concurrency, MaxConcurrency)
	case c.Visibility != 0 && (c.Visibility < renewal.MinVisibility || c.Visibility > renewal.MaxVisibility):
		return fmt.Errorf("visibility %s is out of range: give %s to %s", c.Visibility, renewal.MinVisibility, renewal.MaxVisibility)
	case c.PayloadMemory < queue.MaxPayload:
		return fmt.Errorf("payload memory of %d bytes is too little: one payload may have %d", c.PayloadMemory, queue.MaxPayload)
	case c.DrainBudget < 0 || c.DrainBudget > 0 && c.DrainBudget < time.Second:
		return fmt.Errorf("drain budget %s is too short: give at least 1s", c.DrainBudget)
	}
	for _, check := range []func() error{
		c.Policy.Validate, c.validateLogSize, c.validateKinds, c.validateInstance, c.validateQueues, c.Acknowledge.Validate,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validateInstance checks the names of the worker and its VM.
func (c *Config) validateInstance() error {
	if !isVMName(c.VMName) {
		return errors.New("VM name is not one that Azure gives: use letters, digits, dots, dashes and underscores, 80 at most")
	}
	return vmshare.ValidateInstance(c.Instance)
}

// validateLogSize checks how much is kept of jobs' logs.
func (c *Config) validateLogSize() error {
	if c.LogSize < joblog.MinSize || c.LogSize > joblog.MaxSize {
		return fmt.Errorf("job logs of %d KiB are out of range: give %d to %d, or 0 to keep none", c.LogSize>>10, joblog.MinSize>>10,
			joblog.MaxSize>>10)
	}
	return nil
}

// validateKinds checks what jobs the worker does.
func (c *Config) validateKinds() error {
	for kind, handler := range c.Kinds {
		if err := jobid.ValidateKind(kind); err != nil {
			return err
		}
		if err := job.LimitsOf(handler).Validate(); err != nil {
			return fmt.Errorf("limits of kind %q: %w", kind, err)
		}
		limits, has := job.OutputLimitsOf(handler)
		if err := limits.Validate(); err != nil {
			return fmt.Errorf("limits of kind %q: %w", kind, err)
		}
		if has && c.Outputs == nil {
			return fmt.Errorf("kind %q has outputs, and the worker has no container for them", kind)
		}
	}
	if c.DefaultKind != "" && c.Kinds[c.DefaultKind] == nil {
		return fmt.Errorf("default kind %q is not one of this worker's kinds", c.DefaultKind)
	}
	return nil
}

// validateQueues checks where jobs come from and where they may be moved.
func (c *Config) validateQueues() error {
	taken := queue.Names(c.takeFrom())
	slices.Sort(taken)
	switch {
	case len(slices.Compact(taken)) < len(c.takeFrom()):
		return errors.New("jobs would be taken from one queue twice: name each queue once")
	case c.Shards != nil && c.Shards.Main() != c.Queue:
		return errors.New("the queue of jobs is not the first of its shards: give both by the same name")
	case c.MoveAfter < 0:
		return fmt.Errorf("jobs cannot be moved after %d interruptions: give 1 or more, or 0 to move none", c.MoveAfter)
	case c.Changeover < 0 || c.Changeover > MaxChangeover:
		return fmt.Errorf("changeover of %s is out of range: give the time that a moved job waits for a worker, up to %s, or 0 to move none "+
			"for its deadline", c.Changeover, MaxChangeover)
	case c.moves() && c.OnDemand == nil:
		return errors.New("there is no on-demand queue to move jobs to: name one, or move none")
	}
	return nil
}

// moves reports whether jobs may be moved to the on-demand queue.
func (c *Config) moves() bool { return c.MoveAfter > 0 || c.Changeover > 0 }

func (c *Config) hasStores() bool {
	for _, a := range c.accounts() {
		if len(a.TakeFrom) == 0 || slices.Contains(a.TakeFrom, nil) || a.Queue == nil || a.Poison == nil || a.Payloads == nil ||
			a.Records == nil {
			return false
		}
	}
	return c.Workers != nil && (len(c.More) == 0 || c.Spread != nil)
}

// maxVMName is the longest name of a VM, in bytes; that of a scale set's VM has a
// number or an id behind the set's.
const maxVMName = 80

// isVMName reports whether a name is one that Azure gives, or empty.
func isVMName(name string) bool {
	return len(name) <= maxVMName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// Account are the queues and containers of one storage account. The fields are those of
// [Config].
type Account struct {
	Name string // empty for the first

	Queue, Poison, OnDemand *queue.Queue
	Shards                  *queue.Shards
	TakeFrom                []*queue.Queue

	Payloads *queue.Payloads
	Records  *checkpoint.Store
	Outputs  *outputs.Store
	Logs     *joblog.Store
}

// accounts returns all accounts, the first of the deployment first.
func (c *Config) accounts() []Account {
	first := Account{
		Queue: c.Queue, Poison: c.Poison, OnDemand: c.OnDemand, Shards: c.Shards, TakeFrom: c.TakeFrom,
		Payloads: c.Payloads, Records: c.Records, Outputs: c.Outputs, Logs: c.Logs,
	}
	return append([]Account{first}, c.More...)
}

// takeFrom returns the queues that jobs are taken from, in all accounts.
func (c *Config) takeFrom() (queues []*queue.Queue) {
	for _, a := range c.accounts() {
		queues = append(queues, a.TakeFrom...)
	}
	return queues
}

// moreStores returns what deliveries of the further accounts need.
func (c *Config) moreStores() (stores []delivery.Stores) {
	for _, a := range c.More {
		stores = append(stores, delivery.Stores{
			In: a.Name, Poison: a.Poison, OnDemand: a.OnDemand, Payloads: a.Payloads, Records: a.Records, Outputs: a.Outputs, Logs: a.Logs,
		})
	}
	return stores
}

// blobsFail reports whether calls for blobs of an account fail, where there are several.
func (w *Worker) blobsFail(account string) bool {
	return len(w.More) > 0 && w.Blobs.Fail(account, time.Now())
}

// sourcesOfAccounts returns the queues that jobs are taken from by account, and what
// checks the account.
func (w *Worker) sourcesOfAccounts() (all []sources.Account) {
	for _, a := range w.accounts() {
		all = append(all, sources.Account{
			Name: a.Name, TakeFrom: a.TakeFrom, Main: a.Queue, Shards: a.Shards,
			Check: func(ctx context.Context) error { return w.checkStorage(ctx, a) },
		})
	}
	return all
}
