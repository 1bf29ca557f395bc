package spotworker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/runtimedir"
)

// neighbours takes this worker's place among those of its VM. Without a folder it
// counts as the only one, and there is nothing to return.
func (f *flags) neighbours(log *slog.Logger) (*runtimedir.Dir, error) {
	if err := runtimedir.ValidateInstance(f.Instance); err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--instance: %w", err)}
	}
	folders := filepath.SplitList(f.RuntimeDir) // systemd gives a list
	if len(folders) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	dir, err := runtimedir.Open(context.Background(), runtimedir.Config{
		Path: folders[0], Instance: f.Instance, Boot: bootID(), Log: log,
	})
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--runtime-dir: %w", err)}
	}
	return dir, nil
}

// metadata returns a client of the metadata service, or nil to run without. Its
// requests count against those of the whole VM where the folder of dir is shared.
func (f *flags) metadata(dir *runtimedir.Dir) (*preempt.Client, error) {
	if err := preempt.ValidateEventsVersion(f.EventsAPIVersion); err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--events-api-version: %w", err)}
	}
	if f.MetadataEndpoint == "none" {
		return nil, nil //nolint:nilnil // see above
	}
	options := []preempt.Option{preempt.WithEventsVersion(f.EventsAPIVersion)}
	if dir != nil {
		options = append(options, preempt.WithBudget(dir.Budget()))
	}
	client, err := preempt.NewClient(f.MetadataEndpoint, options...)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--metadata-endpoint: %w (none runs without eviction notices)", err)}
	}
	return client, nil
}
