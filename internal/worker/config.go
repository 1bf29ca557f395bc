package worker

import (
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
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/worker/intake"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/job"
)

// MaxConcurrency is the most jobs that one worker runs at once.
const MaxConcurrency = 10_000

// MaxChangeover is the longest that a moved job may wait for a worker.
const MaxChangeover = 24 * time.Hour

// PayloadMemory bounds the bytes of all jobs' payloads that a worker holds at once: sixteen of the
// largest. Payloads in messages do not count.
const PayloadMemory = 1 << 30

// Config holds the settings of a worker, and the parts that it is given.
type Config struct {
	// Settings are the settings of deliveries: storage, handlers, limits, log.
	delivery.Settings

	// TakeFrom are the queues that jobs are taken from, in turn. Default:
	// [sources.Spot] alone.
	TakeFrom []sources.Choice

	// Concurrency is how many jobs run at once, 1 … [MaxConcurrency].
	// Default: one per processor.
	Concurrency int

	// DrainBudget is how long a drain may take after SIGTERM; after a notice
	// the platform's time counts. Default 10 s.
	DrainBudget time.Duration

	// ExitWhenIdle is how long the worker had no job and found no message until it ends as
	// after SIGTERM. Default 0: it never ends for that.
	ExitWhenIdle time.Duration

	// Metadata is the VM's metadata service; nil runs without notices.
	Metadata *preempt.Client

	// Acknowledge says which events are acknowledged early, once everything is saved
	// or released. Default: [events.AcknowledgeSelf].
	Acknowledge events.Acknowledge

	// Runtime is this worker's place among the workers of its VM; nil for the only worker.
	Runtime *vmshare.Dir

	// Instance tells several workers on one VM apart. Default "0".
	Instance string

	// VMName is the VM's name as scheduled events have it, in place of the metadata
	// service's answer. Empty asks the service.
	VMName string

	// Host is the worker's name where the metadata service does not give one.
	Host string

	// OnName is called when the worker has chosen its name, and OnVM when the metadata
	// service has given the VM's name. They must be quick. Optional.
	OnName, OnVM func(string)

	// Program is the worker's version, for people.
	Program string

	// BootID tells one start of the machine from the next. Optional.
	BootID string

	// Observe gets what happens, for metrics. Default: none.
	Observe observe.Observer

	// PublishDepth publishes about how many messages a queue has, and for how long the one at its
	// front has waited, for the autoscale of the resource that DepthsOf identifies. It must be
	// quick. Optional.
	PublishDepth func(queue string, messages int, oldest time.Duration)
	DepthsOf     string

	// Calls counts the calls to storage, and Trouble returns what is wrong with the machine,
	// for the heartbeat. Optional.
	Calls   *activity.Calls
	Trouble func() presence.Trouble

	// LogTail returns the last lines of the worker's log, for the heartbeat after a drain: an
	// eviction deletes the log with its VM. Optional.
	LogTail func() string

	// Pressure counts the calls that storage refused because they came too fast, which
	// slow claims down. Optional: claims that are refused count in any case.
	Pressure *intake.Pressure
}

func (c *Config) setDefaults() {
	if len(c.TakeFrom) == 0 {
		c.TakeFrom = []sources.Choice{sources.Spot}
	}
	if c.Concurrency == 0 {
		c.Concurrency = min(runtime.GOMAXPROCS(0), MaxConcurrency)
	}
	if c.Visibility == 0 {
		c.Visibility = renewal.DefaultVisibility
	}
	if c.PayloadMemory == 0 {
		c.PayloadMemory = PayloadMemory
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
	if c.Observe == nil {
		c.Observe = observe.Nothing
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
	if c.ExitWhenIdle < 0 {
		return fmt.Errorf("exit when idle for %s: give a time such as 5m, or 0 to stay", c.ExitWhenIdle)
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
		return fmt.Errorf("job logs of %d KiB are out of range: give %d to %d", c.LogSize>>10, joblog.MinSize>>10,
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
		if has && c.Stores.Outputs == nil {
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
	choices := slices.Sorted(slices.Values(c.TakeFrom))
	switch {
	case len(slices.Compact(choices)) < len(c.TakeFrom):
		return errors.New("jobs would be taken from one queue twice: name each queue once")
	case c.Stores.Jobs != nil && c.Stores.Jobs.Main() != c.Stores.Queue:
		return errors.New("the queue of jobs is not the first of its shards: give both by the same name")
	case c.MoveAfter < 0:
		return fmt.Errorf("jobs cannot be moved after %d interruptions: give 1 or more, or 0 to move none", c.MoveAfter)
	case c.Changeover < 0 || c.Changeover > MaxChangeover:
		return fmt.Errorf("changeover of %s is out of range: give the time that a moved job waits for a worker, up to %s, or 0 to move none "+
			"for its deadline", c.Changeover, MaxChangeover)
	case c.moves() && c.Stores.OnDemand == nil:
		return errors.New("there is no on-demand queue to move jobs to: name one, or move none")
	}
	return nil
}

// moves reports whether jobs may be moved to the on-demand queue.
func (c *Config) moves() bool { return c.MoveAfter > 0 || c.Changeover > 0 }

// hasStores reports whether there are the queues and containers that every job needs.
func (c *Config) hasStores() bool {
	s := c.Stores
	return s != nil && !slices.Contains(sources.Chosen(s, c.TakeFrom), nil) && s.Queue != nil && s.Poison != nil && s.Payloads != nil &&
		s.Records != nil && s.Workers != nil
}

// maxVMName is the longest name of a VM, in bytes; the name of a scale set's VM
// has a number or an id behind the set's.
const maxVMName = 80

// isVMName reports whether a name has the form of Azure's names of VMs, or is empty.
func isVMName(name string) bool {
	return len(name) <= maxVMName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
