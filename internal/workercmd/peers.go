package workercmd

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/preempt"
)

// instanceOf returns the instance with the given name. A UUID, such as the UID of a pod,
// loses its dashes: an instance has none.
func instanceOf(name string) string {
	if len(name) == len(uuid.UUID{}.String()) && uuid.Validate(name) == nil {
		return strings.ReplaceAll(name, "-", "")
	}
	return name
}

// peers joins the other workers of the VM, in the folder that all of them share. It
// returns nil without such a folder: the worker then behaves as the only one.
func (f *flags) peers(log *slog.Logger) (*vmshare.Dir, error) {
	if err := vmshare.ValidateInstance(f.Instance); err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--instance: %w", err)}
	}
	folders := filepath.SplitList(f.RuntimeDir) // systemd gives a list
	if len(folders) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	dir, err := vmshare.Open(context.Background(), vmshare.Config{
		Path: folders[0], Instance: f.Instance, Boot: bootID(), Log: log,
	})
	if err != nil {
		return nil, refused(fmt.Errorf("--runtime-dir: %w", err))
	}
	return dir, nil
}

// metadata returns a client of the metadata service, or nil to run without. Where
// dir is shared, all workers of the VM share one budget of requests, and the VM's identity.
func (f *flags) metadata(dir *vmshare.Dir) (*preempt.Client, error) {
	if f.MetadataEndpoint == "none" {
		return nil, nil //nolint:nilnil // see above
	}
	var options []preempt.Option
	if dir != nil {
		options = append(options, preempt.WithBudget(dir.Budget()), preempt.WithIdentities(dir))
	}
	client, err := preempt.NewClient(f.MetadataEndpoint, options...)
	if err != nil {
		return nil, &cli.ConfigError{Err: fmt.Errorf("--metadata-endpoint: %w (none runs without eviction notices)", err)}
	}
	return client, nil
}
