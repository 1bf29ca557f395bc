package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spotworker/spotworker/internal/emulator/imds/scenario"
	"github.com/spotworker/spotworker/internal/lab"
)

// imdsCommand are the flags of lab imds.
type imdsCommand struct {
	Scenario     string `help:"What happens: one of --list, or a file. Default: ${default}." default:"eviction" placeholder:"NAME|FILE"`
	MetadataPort int    `help:"Port of the metadata service; 0 is one that is free." default:"10254"`
	List         bool   `help:"List the scenarios that come with the program, and exit."`
	Show         bool   `help:"Print the scenario's text, to make another of it, and exit."`
}

func (c *imdsCommand) run(ctx context.Context, stdout io.Writer) error {
	config := c.config()
	switch {
	case config.MetadataPort < 0 || config.MetadataPort > 65535:
		return configError(fmt.Errorf("--metadata-port %d is no port", config.MetadataPort))
	case c.List:
		return lab.WriteScenarios(stdout)
	}
	s, err := lab.LoadScenario(config.Scenario)
	if err != nil {
		return configError(fmt.Errorf("--scenario: %w", err))
	}
	if text, ok := scenario.ReadyText(config.Scenario); ok && c.Show {
		_, err := stdout.Write(text)
		return err
	}
	if c.Show {
		return configError(errors.New("--show is for the scenarios of --list"))
	}
	err = lab.IMDS(ctx, s, config.MetadataPort, stdout)
	if _, ok := errors.AsType[*lab.PortTakenError](err); ok {
		return configError(fmt.Errorf("%w with --metadata-port", err))
	}
	return err
}

func (c *imdsCommand) config() lab.IMDSConfig {
	return lab.IMDSConfig{Scenario: c.Scenario, MetadataPort: c.MetadataPort}
}
