package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/doctor"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// doctorCommand examines the deployment.
type doctorCommand struct {
	All     bool          `help:"Also print what is in order." env:"-"`
	Timeout time.Duration `help:"Longest time to take." default:"1m" env:"-"`
}

// Help is shown by doctor --help.
func (*doctorCommand) Help() string {
	return `Examines queues, containers and your roles on them, the clocks, and by their heartbeats the
workers: whether any is alive, their versions, whether they know their VM and follow the control
document, and what they report: slow calls to storage, jobs of kinds that no worker has, jobs that
may hang. It measures its own calls. Each finding that is not in order comes with what to do. It changes nothing: whether you
may change a queue or container is found out by deleting what does not exist.

Exit codes: 0 no failure, perhaps warnings; 1 a failure: jobs cannot be done or not be seen; 78
wrong flags.`
}

// findingLine is a finding, in the JSON output.
type findingLine struct {
	Level doctor.Level `json:"level"` // ok, warning or failure
	Check string       `json:"check"`
	Text  string       `json:"text"`
	Fix   string       `json:"fix,omitempty"`
}

func (c *doctorCommand) run(ctx context.Context, s *session) error {
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	findings := append(doctor.Examine(within, stores), reported(within, s)...)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	counts := map[doctor.Level]int{}
	for _, f := range findings {
		counts[f.Level]++
		if f.Level == doctor.OK && !c.All && !s.printer.json {
			continue
		}
		if err := s.printer.finding(f); err != nil {
			return err
		}
	}
	if !s.printer.json {
		s.printer.note("checks: %d; in order: %d, warnings: %d, failures: %d", len(findings), counts[doctor.OK], counts[doctor.Warning],
			counts[doctor.Failure])
	}
	if doctor.Worst(findings) == doctor.Failure {
		return errors.New("jobs cannot be done, or not be seen; the lines above say why, and what to do")
	}
	return nil
}

// reported are the findings that the workers report in their heartbeats. Without the
// heartbeats there are none: the examination says why.
func reported(ctx context.Context, s *session) (all []doctor.Finding) {
	deployment, err := s.client()
	if err != nil {
		return nil
	}
	workers, err := overview.Workers(ctx, deployment)
	if err != nil {
		return nil
	}
	for _, text := range overview.Found(workers) {
		all = append(all, doctor.Finding{Level: doctor.Warning, Check: "reports of the workers", Text: plaintext.Line(text),
			Fix: "spotctl status shows it with the rest of the fleet"})
	}
	return all
}

// finding prints a finding: a paragraph, or a line of JSON.
func (p *printer) finding(f doctor.Finding) error {
	if p.json {
		return p.line(findingLine(f))
	}
	lines := overview.Wrap(fmt.Sprintf("%-8s ", f.Level), f.Check+": "+f.Text, p.width)
	if f.Fix != "" {
		lines = append(lines, overview.Wrap("         ", "to do: "+f.Fix, p.width)...)
	}
	return p.lines(lines)
}
