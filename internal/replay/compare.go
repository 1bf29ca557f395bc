package replay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/delivery/renewal"
)

// Choice is a policy with a name.
type Choice struct {
	Name   string
	Policy Policy
	Fixed  int // regular VMs that it needs
}

// Choices returns the policies that are compared with the policy of a scenario, which comes
// first: each differs from it in one thing.
func Choices(s Scenario) []Choice {
	base := s.Policy
	but := func(name string, change func(*Policy)) Choice {
		c := Choice{Name: name, Policy: base, Fixed: s.Fleet.Fixed}
		change(&c.Policy)
		return c
	}
	every := func(d time.Duration) func(*Policy) {
		return func(p *Policy) { p.Interval, p.Never = Duration{d}, false }
	}
	name := "adaptive"
	switch {
	case base.Never:
		name = "no checkpoints"
	case base.Interval.Duration > 0:
		name = "every " + Brief(base.Interval.Duration)
	}
	all := []Choice{
		but(name, func(*Policy) {}),
		but("adaptive", every(0)),
		but("every 10s", every(10*time.Second)),
		but("every 1m", every(time.Minute)),
		but("every 10m", every(10*time.Minute)),
		but("no checkpoints", func(p *Policy) { p.Never, p.Interval = true, Duration{} }),
		but(name+", no notices", func(p *Policy) { p.Deaf = true }),
		but(name+", no release", func(p *Policy) { p.Hold = true }),
		but(name+", visibility 30s", func(p *Policy) { p.Visibility = Duration{renewal.DefaultVisibility} }),
		but(name+", visibility 10m", func(p *Policy) { p.Visibility = Duration{10 * time.Minute} }),
	}
	moved := but(name+", moved after 3", func(p *Policy) { p.MoveAfter = 3 })
	if moved.Fixed == 0 {
		moved.Fixed = max(1, s.Fleet.VMs/10)
		moved.Name += fmt.Sprintf(" to %d regular", moved.Fixed)
	}
	all = append(all, moved)
	var distinct []Choice
	seen := map[Policy]bool{}
	for _, c := range all {
		if !seen[c.Policy] {
			distinct = append(distinct, c)
		}
		seen[c.Policy] = true
	}
	return distinct
}

// Compare replays a scenario under each policy. All see the same lives and jobs.
func Compare(ctx context.Context, s Scenario, choices []Choice) ([]*Report, error) {
	reports := make([]*Report, len(choices))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i, c := range choices {
		group.Go(func() (err error) {
			one := s
			one.Policy, one.Fleet.Fixed = c.Policy, c.Fixed
			reports[i], err = Run(ctx, one)
			return err
		})
	}
	return reports, group.Wait()
}

// Brief writes a duration in as few digits as say enough: 35ms, 4.2s, 3m20s, 1h05m, 7d4h.
func Brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Brief(-d)
	case d == 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return trimmed(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d < day:
		return trimmed(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return trimmed(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func trimmed(d, large time.Duration, of string, small time.Duration, then string) string {
	if d%large < small {
		return fmt.Sprintf("%d%s", d/large, of)
	}
	return fmt.Sprintf("%d%s%d%s", d/large, of, d%large/small, then)
}
