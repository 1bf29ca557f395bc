package costs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs/sizing"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/queue"
)

// Size is the command size.
type Size struct {
	JobsPerSecond float64       `help:"Jobs that arrive each second." required:"" placeholder:"N" env:"-"`
	Seconds       float64       `help:"Seconds of work in one job." required:"" placeholder:"N" env:"-"`
	StateMib      float64       `name:"state-mib" help:"${about_size_state_mib}" default:"0" env:"-"`
	Slots         int           `help:"Jobs at once on a VM: the workers' --concurrency." default:"8" env:"-"`
	EvictionRate  float64       `help:"Evictions of a VM in percent per hour, as spotctl prices shows." default:"5" env:"-"`
	Boot          time.Duration `help:"Time from when a VM is paid for until its worker takes work." default:"3m" env:"-"`
	VMPrice       float64       `name:"vm-price" help:"${about_size_vm_price}" default:"0" env:"-"`
	CallPrice     float64       `help:"Price of 10,000 storage calls. 0 leaves it out." default:"0" env:"-"`
}

// Help is shown by size --help.
func (*Size) Help() string {
	return `Calculates how many VMs, queues and deployments a steady stream of jobs needs, how many
calls and bytes it makes a month, and which limit is reached first. It asks no service: the
limits are the documented ones of storage, 2,000 messages a second for a queue, 20,000 calls and 25
Gbit a second for an account. Prices are those that you give.`
}

// Run prints the size.
func (c *Size) Run(_ context.Context, s Session) error {
	if err := c.check(); err != nil {
		return &cli.ConfigError{Err: err}
	}
	size := sizing.For(sizing.Load{
		JobsPerSecond: c.JobsPerSecond, Seconds: c.Seconds, StateBytes: c.StateMib * (1 << 20), Slots: c.Slots, Rate: c.EvictionRate / 100,
		Boot: c.Boot,
	})
	if size.VMs == 0 {
		return errors.New("no number of VMs is enough: they are evicted before they do anything useful")
	}
	vms, calls := size.Cost(c.VMPrice, c.CallPrice)
	if s.JSON {
		return s.Line(sizeLine{
			VMs: size.VMs, Useful: size.Useful, Queues: size.Queues, Deployments: size.Deployments, Interval: size.Interval.Seconds(),
			CallsPerJob: size.Calls,
			Calls:       size.PerMonth.Calls, Bytes: size.PerMonth.Bytes, VMCost: vms, CallCost: calls, Bottleneck: size.Uses[0].Name,
			Share: size.Uses[0].Share,
		})
	}
	lines := []string{
		fmt.Sprintf("VMs          %d, %.1f %% of their time useful", size.VMs, 100*size.Useful),
		fmt.Sprintf("queues       %d", size.Queues) + shardsOf(size),
		fmt.Sprintf("deployments  %d", size.Deployments),
		fmt.Sprintf("calls        %.2f for a job, %.0f million a month", size.Calls, size.PerMonth.Calls/1e6),
		fmt.Sprintf("checkpoints  %s, %.0f GB written a month", every(size.Interval), size.PerMonth.Bytes/1e9),
	}
	if c.VMPrice > 0 {
		lines = append(lines, fmt.Sprintf("VMs' cost    %.2f a month", vms))
	}
	if c.CallPrice > 0 {
		lines = append(lines, fmt.Sprintf("calls' cost  %.2f a month", calls))
	}
	return s.Lines(append(lines, fmt.Sprintf("bottleneck   %s: %.0f %% of one", size.Uses[0].Name, 100*size.Uses[0].Share)))
}

// check checks the flags.
func (c *Size) check() error {
	jobs := c.JobsPerSecond > 0 && c.JobsPerSecond <= 1e6 && c.Seconds > 0 && c.Seconds <= 1e7 && c.StateMib >= 0 && c.StateMib <= 32<<10
	vms := c.Slots >= 1 && c.EvictionRate > 0 && c.EvictionRate <= 100 && c.Boot >= 0
	if prices := c.VMPrice >= 0 && c.CallPrice >= 0; !jobs || !vms || !prices {
		return errors.New("a number is out of range: give jobs and seconds above 0 (up to 1,000,000 and 10,000,000), a state of up to 32768 " +
			"MiB, at least one slot, an eviction rate above 0 up to 100, and no negative time or price")
	}
	return nil
}

func every(interval time.Duration) string {
	if interval == 0 {
		return "none: a job is too short, or has no state"
	}
	return "every " + interval.Round(time.Second).String()
}

// shardsOf says which command makes that many queues, where a deployment has them.
func shardsOf(size sizing.Size) string {
	if size.Deployments > 1 || size.Queues < 2 || size.Queues > queue.MaxShards {
		return ""
	}
	return fmt.Sprintf(": spotctl shards %d", size.Queues)
}

// sizeLine is a size, in the JSON output.
type sizeLine struct {
	VMs         int     `json:"vms"`
	Useful      float64 `json:"useful_share"`
	Queues      int     `json:"queues"`
	Deployments int     `json:"deployments"`
	Interval    float64 `json:"checkpoint_interval_seconds,omitempty"`
	CallsPerJob float64 `json:"calls_a_job"`
	Calls       float64 `json:"calls_a_month"`
	Bytes       float64 `json:"bytes_a_month"`
	VMCost      float64 `json:"vm_cost_a_month,omitempty"`
	CallCost    float64 `json:"call_cost_a_month,omitempty"`
	Bottleneck  string  `json:"bottleneck"`
	Share       float64 `json:"bottleneck_share"`
}
