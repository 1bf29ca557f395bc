package spotworker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/process"
	"github.com/spotworker/spotworker/job"
)

// kinds returns the handlers that the flags describe and the given ones, which
// come before built-in ones of the same name. close frees what they need.
func (f *flags) kinds(given job.Kinds, account *azure.Account, log *slog.Logger) (all job.Kinds, closeKinds func(), err error) {
	if len(f.OutputContainer) > 0 && len(f.DataContainer) == 0 {
		return nil, nil, &cli.ConfigError{Err: errors.New("--output-container is for compress jobs, which read from somewhere: name that with --data-container")}
	}
	commands, closeKinds, err := f.commands(given, log)
	if err != nil {
		return nil, nil, err
	}
	all = f.builtin(account, log)
	maps.Copy(all, commands)
	maps.Copy(all, given)
	if len(all) == 0 {
		return nil, nil, &cli.ConfigError{Err: errors.New("there is no kind of job to do: name the containers of digest jobs with --data-container, or commands with --kinds-file")}
	}
	return all, closeKinds, nil
}

// builtin returns the kinds that come with the worker, as far as the operator said
// what they may read and write.
func (f *flags) builtin(account *azure.Account, log *slog.Logger) job.Kinds {
	kinds := job.Kinds{}
	if len(f.DataContainer) > 0 {
		kinds["digest"] = handlers.NewDigest(account.Container, f.DataContainer, log)
	}
	if len(f.DataContainer) > 0 && len(f.OutputContainer) > 0 {
		kinds["compress"] = handlers.NewCompress(account.Container, f.DataContainer, f.OutputContainer, log)
	}
	return kinds
}

// commands returns the handlers of the kinds file, none without one.
func (f *flags) commands(given job.Kinds, log *slog.Logger) (all job.Kinds, closeKinds func(), err error) {
	all = job.Kinds{}
	if f.KindsFile == "" {
		return all, func() {}, nil
	}
	kinds, err := process.ReadKinds(f.KindsFile)
	if err != nil {
		return nil, nil, &cli.ConfigError{Err: err}
	}
	for i := range kinds {
		if given[kinds[i].Name] != nil {
			return nil, nil, &cli.ConfigError{Err: fmt.Errorf("%s: kind %s is built into this worker; give the command another name", f.KindsFile, kinds[i].Name)}
		}
	}
	scratch, err := process.OpenScratch(f.Scratch, log)
	if err != nil {
		return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--scratch: the folder for jobs cannot be made: %w", err)}
	}
	for i := range kinds {
		all[kinds[i].Name] = process.NewHandler(kinds[i], scratch, log)
	}
	return all, func() {
		if err := scratch.Close(); err != nil {
			log.Warn("scratch folder not removed; the next worker here does that", "error", err)
		}
	}, nil
}
