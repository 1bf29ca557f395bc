package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spotworker/spotworker/cmd/spotctl/internal/check"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// findingLine is a finding, in the JSON output.
type findingLine struct {
	Level overview.Level `json:"level"` // ok, warning or failure
	Check string         `json:"check"`
	Text  string         `json:"text"`
	Fix   string         `json:"fix,omitempty"`
}

// check examines the deployment, and says what to do.
func (c *statusCommand) check(ctx context.Context, s *session) error {
	stores, err := s.flags.Open(parallelCalls, version)
	if err != nil {
		return err
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	within, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	var workers []overview.Finding
	var reading sync.WaitGroup
	reading.Go(func() {
		if found, err := overview.Read(within, deployment); err == nil { // otherwise the examination says why
			workers = found.Examine()
		}
	})
	findings := check.Examine(within, stores)
	reading.Wait()
	findings = append(findings, workers...)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	counts := map[overview.Level]int{}
	for _, f := range findings {
		counts[f.Level]++
		if f.Level == overview.OK && !c.All && !s.printer.json {
			continue
		}
		if err := s.printer.finding(f); err != nil {
			return err
		}
	}
	if !s.printer.json {
		s.printer.note("checks: %d; in order: %d, warnings: %d, failures: %d", len(findings), counts[overview.OK], counts[overview.Warning],
			counts[overview.Failure])
	}
	if check.Worst(findings) == overview.Failure {
		return errors.New("jobs cannot be done, or not be seen; the lines above say why, and what to do")
	}
	return nil
}

// finding prints a finding: a paragraph, or a line of JSON.
func (p *printer) finding(f overview.Finding) error {
	f.Text, f.Fix = plaintext.Line(f.Text), plaintext.Line(f.Fix)
	if p.json {
		return p.line(findingLine{f.Level, f.Check, f.Text, f.Fix})
	}
	lines := overview.Wrap(fmt.Sprintf("%-8s ", f.Level), f.Check+": "+f.Text, p.width)
	if f.Fix != "" {
		lines = append(lines, overview.Wrap("         ", "to do: "+f.Fix, p.width)...)
	}
	return p.lines(lines)
}
