package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spotworker/spotworker/internal/lab/demo"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// demoCommand are the flags of lab demo.
type demoCommand struct {
	Keep bool   `help:"Keep the workers' logs even if every promise was kept."`
	HTML string `help:"Write a page with the picture of the run to this file." name:"html" placeholder:"FILE"`
}

func (d *demoCommand) run(ctx context.Context, stdout io.Writer) error {
	config := demo.DefaultConfig()
	config.Keep = d.Keep
	if d.HTML != "" {
		// A wrong folder is found before the run and not after it.
		if _, err := os.Stat(filepath.Dir(d.HTML)); err != nil {
			return configError(fmt.Errorf("--html: %w", err))
		}
		config.Told = func(s lanes.Story) error { return writePage(d.HTML, s.Page) }
	}
	return demo.Run(ctx, config, stdout)
}
