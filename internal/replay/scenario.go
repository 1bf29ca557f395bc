package replay

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/text/durations"
)

// Duration is a duration that is written as people type it, such as 90s or 7d.
type Duration struct{ time.Duration }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = durations.Parse(string(text))
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Scenario is the input of a replay. In a file it is a JSON object with the keys of its fields;
// a missing key has its value of [Default].
type Scenario struct {
	Fleet  Fleet  `json:"fleet"`
	Work   Work   `json:"work"`
	Policy Policy `json:"policy"`

	// For is how long the fleet is replayed. With a number of jobs the replay ends earlier,
	// with the last of them.
	For Duration `json:"for"`

	// Seed begins all random numbers: the same scenario has the same result.
	Seed uint64 `json:"seed"`
}

// Fleet says how VMs live, and their prices.
type Fleet struct {
	VMs   int     `json:"vms"`       // 0: all VMs of a recorded fleet
	Slots int     `json:"slots"`     // jobs that a VM runs at once
	Lives string  `json:"lives"`     // one of [Sources], or the path of a file
	Rate  float64 `json:"evictions"` // per hour of a VM; for synthetic lives

	Full  float64  `json:"notice_30s"`    // share of the evictions that are announced 30 s before
	Short float64  `json:"notice_short"`  // share that is announced less than 10 s before; the rest is not announced
	Boot  Duration `json:"boot"`          // from when a VM is paid for until its worker takes work
	Fixed int      `json:"regular_vms"`   // further VMs that are never evicted and take only moved jobs
	Price float64  `json:"price"`         // of an hour of a VM
	Dear  float64  `json:"regular_price"` // of an hour of a regular VM
}

// Work describes the jobs.
type Work struct {
	Jobs    int      `json:"jobs"`     // all there at the start; 0: as many as Load needs
	Load    float64  `json:"load"`     // share of the slots' time that the jobs need; they come at an even pace
	Length  Duration `json:"job_time"` // of a job that nothing interrupts
	Save    Duration `json:"save_time"`
	Restore Duration `json:"restore_time"` // from a claim until a resumed job works again

	States Duration `json:"state_every"`        // work between two states; 0: the job has a new state at any moment
	NoLast bool     `json:"no_state_at_notice"` // a job that is stopped has no state of its last moment
	Stop   Duration `json:"stop_time"`          // from a notice until the job has returned
	Beside bool     `json:"works_while_saved"`  // otherwise a job stands still while its state is saved
}

// state returns the last state of a job that has so much work done.
func (w Work) state(progress time.Duration) time.Duration {
	if w.States.Duration == 0 {
		return progress
	}
	return progress.Truncate(w.States.Duration)
}

// Policy describes the workers' decisions. The zero value of each field is the default of a worker.
type Policy struct {
	Interval   Duration `json:"checkpoint_interval"` // between two saves; 0: the adaptive policy
	Never      bool     `json:"no_checkpoints"`      // each run starts from the beginning
	Rate       float64  `json:"eviction_rate"`       // evictions per hour that the adaptive policy starts from
	Deaf       bool     `json:"no_notices"`          // notices are not seen
	Hold       bool     `json:"no_release"`          // after a notice states are saved, but no message is released
	Visibility Duration `json:"visibility"`          // how long the messages of a dead worker stay hidden
	MoveAfter  int      `json:"move_after"`          // interruptions after which a job moves to a regular VM; 0: never
}

// Default returns a day of ten VMs at the eviction rate that workers start from, 90 % of the
// evictions noticed, with jobs of an hour on 90 % of the slots.
func Default() Scenario {
	of := func(d time.Duration) Duration { return Duration{d} }
	return Scenario{
		Fleet: Fleet{
			VMs: 10, Slots: 1, Lives: Poisson, Rate: checkpoint.DefaultPolicy().EvictionRate, Full: 0.9,
			Boot: of(3 * time.Minute),
		},
		Work:   Work{Load: 0.9, Length: of(time.Hour), Save: of(35 * time.Millisecond), Restore: of(time.Second)},
		Policy: Policy{Visibility: of(renewal.DefaultVisibility)},
		For:    of(24 * time.Hour),
		Seed:   1,
	}
}

// Bounds of a scenario: a replay ends within minutes.
const (
	mostVMs   = 20_000
	mostSlots = 1024
	mostTime  = 366 * 24 * time.Hour
	mostRuns  = 20_000_000 // jobs, VMs

	shortest = time.Second

	leastStates = time.Millisecond
)

// Validate returns an error with the change to make, or nil.
func (s Scenario) Validate() error {
	if err := errors.Join(s.Fleet.validate(), s.Work.validate(), s.Policy.validate(s.Fleet)); err != nil {
		return err
	}
	switch {
	case s.For.Duration < time.Minute || s.For.Duration > mostTime:
		return fmt.Errorf("time to replay %s: give %s to %s", s.For, Brief(time.Minute), Brief(mostTime))
	case s.runs() > mostRuns:
		return fmt.Errorf("about %.2g jobs and VMs, more than %d: give fewer, or a shorter time", s.runs(), mostRuns)
	}
	return nil
}

func isShare(x float64) bool { return x >= 0 && x <= 1 }

func isHour(d Duration) bool { return d.Duration >= 0 && d.Duration <= time.Hour }

func isPrice(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

func (f Fleet) validate() error {
	switch {
	case min(f.VMs, f.Fixed) < 0 || max(f.VMs, f.Fixed) > mostVMs:
		return fmt.Errorf("%d VMs and %d regular VMs: give 0 to %d of each", f.VMs, f.Fixed, mostVMs)
	case f.Slots < 1 || f.Slots > mostSlots:
		return fmt.Errorf("%d slots of a VM: give 1 to %d", f.Slots, mostSlots)
	case !isShare(f.Full) || !isShare(f.Short) || f.Full+f.Short > 1+1e-9:
		return fmt.Errorf("shares of noticed evictions are %g and %g: give 0 to 1, and no more than 1 in all", f.Full, f.Short)
	case !isHour(f.Boot):
		return fmt.Errorf("boot time %s: give 0s to 1h", f.Boot)
	case f.IsDrawn() && !(f.Rate > 0 && f.Rate <= 3600):
		return fmt.Errorf("%g evictions per hour of a VM: give more than 0, up to 3600", f.Rate)
	case !isPrice(f.Price) || !isPrice(f.Dear):
		return fmt.Errorf("prices %g and %g: give numbers that are not negative", f.Price, f.Dear)
	}
	return nil
}

func (w Work) validate() error {
	switch {
	case w.Jobs < 0 || w.Jobs == 0 && !(w.Load > 0 && w.Load <= 1):
		return fmt.Errorf("%d jobs and load %g: give a number of jobs, or a load of more than 0, up to 1", w.Jobs, w.Load)
	case w.Length.Duration < shortest || w.Length.Duration > mostTime:
		return fmt.Errorf("job time %s: give %s to %s", w.Length, shortest, Brief(mostTime))
	case !isHour(w.Save) || !isHour(w.Restore):
		return fmt.Errorf("save time %s and restore time %s: give 0s to 1h", w.Save, w.Restore)
	case w.States.Duration < 0 || w.States.Duration > 0 && w.States.Duration < leastStates || w.States.Duration > mostTime:
		return fmt.Errorf("a state every %s: give 0s, or %s to %s", w.States, Brief(leastStates), Brief(mostTime))
	case !isHour(w.Stop):
		return fmt.Errorf("stop time %s: give 0s to 1h", w.Stop)
	}
	return nil
}

func (p Policy) validate(f Fleet) error {
	switch {
	case p.Visibility.Duration < renewal.MinVisibility || p.Visibility.Duration > time.Hour:
		return fmt.Errorf("visibility %s: give %s to 1h", p.Visibility, renewal.MinVisibility)
	case p.MoveAfter < 0 || p.MoveAfter > 0 && f.Fixed == 0:
		return fmt.Errorf("jobs move after %d interruptions to %d regular VMs: give some", p.MoveAfter, f.Fixed)
	case p.Never && p.Interval.Duration > 0:
		return errors.New("a checkpoint interval and no checkpoints exclude each other")
	}
	return p.checkpoints().Validate()
}

// runs is about how many jobs and VMs there will be.
func (s Scenario) runs() float64 {
	hours := float64(s.Fleet.VMs) * s.For.Hours()
	runs := float64(s.Work.Jobs)
	if isDrawn(s.Fleet.Lives) {
		runs += hours * s.Fleet.Rate
	}
	if s.Work.Jobs == 0 {
		runs += hours * float64(s.Fleet.Slots) / s.Work.Length.Hours()
	}
	return runs
}

// checkpoints returns the worker's policy.
func (p Policy) checkpoints() checkpoint.Policy {
	policy := checkpoint.DefaultPolicy()
	policy.Interval = p.Interval.Duration
	if p.Rate != 0 {
		policy.EvictionRate = p.Rate
	}
	return policy
}
