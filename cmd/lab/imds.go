package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds/scenario"
	"github.com/spotworker/spotworker/internal/lab/imds"
)

// imdsCommand are the flags of lab imds.
type imdsCommand struct {
	Scenario     string `help:"What happens: one of --list, or a file. Default: ${default}." default:"eviction" placeholder:"NAME|FILE"`
	MetadataPort int    `help:"Port of the metadata service; 0 is a free one." default:"10254"`
	List         bool   `help:"List the built-in scenarios, and exit."`
	Show         bool   `help:"Print the text of a built-in scenario, as a template for your own, and exit."`
}

func (c *imdsCommand) run(ctx context.Context, stdout io.Writer) error {
	switch {
	case c.MetadataPort < 0 || c.MetadataPort > 65535:
		return configError(fmt.Errorf("--metadata-port %d is not a port", c.MetadataPort))
	case c.List:
		return imds.WriteScenarios(stdout)
	}
	s, err := imds.LoadScenario(c.Scenario)
	if err != nil {
		return configError(fmt.Errorf("--scenario: %w", err))
	}
	if text, ok := scenario.ReadyText(c.Scenario); ok && c.Show {
		_, err := stdout.Write(text)
		return err
	}
	if c.Show {
		return configError(errors.New("--show is for the scenarios of --list"))
	}
	err = imds.Run(ctx, s, c.MetadataPort, stdout)
	if _, ok := errors.AsType[*lab.PortTakenError](err); ok {
		return configError(fmt.Errorf("%w with --metadata-port", err))
	}
	return err
}
