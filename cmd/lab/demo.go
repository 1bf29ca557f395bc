package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/internal/lab/demo"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

// demoCommand are the flags of lab demo.
type demoCommand struct {
	Workers            int           `help:"VMs at a time." default:"4"`
	JobsAtOnce         int           `help:"Jobs that each of them runs at a time." default:"2"`
	Files              int           `help:"Blobs of about 32 MiB, made of files of this machine; hashing one is one job." default:"16"`
	JobTime            time.Duration `help:"About how long a job takes; the bandwidth of downloads is limited accordingly." default:"12s"`
	CheckpointInterval time.Duration `help:"Time between two saves of a job's state." default:"2s"`
	TimeLimit          time.Duration `help:"The demo fails if it takes longer." default:"2m"`
	Bin                string        `help:"Folder with worker and producer. Without it they are built from this source." placeholder:"DIR"`
	Keep               bool          `help:"Keep the workers' logs even if every promise was kept."`
	HTML               string        `help:"Write a page with the picture of the run to this file." name:"html" placeholder:"FILE"`
}

func (d *demoCommand) run(ctx context.Context, stdout io.Writer) error {
	config := d.config()
	if err := config.Validate(); err != nil {
		return configError(err)
	}
	if d.HTML != "" {
		// A wrong folder is found before the run and not after it.
		if _, err := os.Stat(filepath.Dir(d.HTML)); err != nil {
			return configError(fmt.Errorf("--html: %w", err))
		}
		config.Told = func(s lanes.Story) error { return writePage(d.HTML, s.Page) }
	}
	return demo.Run(ctx, config, stdout)
}

func (d *demoCommand) config() demo.Config {
	c := demo.DefaultConfig()
	c.Workers, c.JobsAtOnce, c.Files = d.Workers, d.JobsAtOnce, d.Files
	c.JobTime, c.CheckpointInterval, c.TimeLimit = d.JobTime, d.CheckpointInterval, d.TimeLimit
	c.Binaries, c.Keep = d.Bin, d.Keep
	return c
}
