package workercmd

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// inputs returns the fetcher of jobs' input files, and a function that frees its
// resources.
func (f *flags) inputs(stores *deployment.Stores, observer inputs.Observer, log *slog.Logger) (*inputs.Fetcher, func(), error) {
	if f.InputCache < 0 {
		return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-cache is %d; it must be a number of GiB, or 0 for half of the file system",
			f.InputCache)}
	}
	others := map[string]inputs.Containers{}
	for _, given := range f.InputAccount {
		address, err := named.AccountURL(given)
		if err != nil {
			return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-account %w", err)}
		}
		if others[address], err = stores.Account.Containers(address); err != nil {
			return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-account %s: %w", address, err)}
		}
	}
	scratch, err := filepath.Abs(cmp.Or(f.Scratch, os.TempDir()))
	if err != nil {
		return nil, nil, err
	}
	const most = 1 << 30 // GiB
	names := stores.Names
	fetcher := inputs.New(inputs.Config{
		Folder: filepath.Join(scratch, "spotworker-inputs-"+strconv.Itoa(os.Geteuid())), Limit: min(f.InputCache, most) << 30, Boot: bootID(),
		Account: stores.Account.Container, Endpoint: stores.Account.Endpoint(), Others: others,
		Private: []string{names.Records, names.Payloads, names.Workers, names.Control}, Allowed: f.InputContainer,
		Observer: observer, Verify: f.KindsFile != "" && f.programsShareUser(),
	})
	return fetcher, func() {
		if err := fetcher.Close(); err != nil {
			log.Warn("this worker's folder in the cache of inputs not removed; the next worker here does that", "error", err)
		}
	}, nil
}
