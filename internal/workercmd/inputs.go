package workercmd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// inputs returns the fetcher of jobs' input files, and a function that frees its
// resources.
func (f *flags) inputs(stores *deployment.Stores, tell observe.Observer, log *slog.Logger) (*inputs.Fetcher, func(), error) {
	if f.InputCache < 0 {
		return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-cache is %d; it must be a number of GiB, or 0 for half of the file system",
			f.InputCache)}
	}
	own, _ := named.AccountURL(stores.Account.Endpoint()) // with a connection string it may have another form
	var allowed []string
	others := map[string]*container.Client{}
	for _, given := range f.InputContainer {
		address, name, err := containerOf(given)
		if err != nil {
			return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-container %w", err)}
		}
		if address == "" || address == own {
			allowed = append(allowed, name)
			continue
		}
		account, err := stores.Account.Containers(address)
		if err != nil {
			return nil, nil, &cli.ConfigError{Err: fmt.Errorf("--input-container %s/%s: %w", address, name, err)}
		}
		others[address+"/"+name] = account(name)
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
		Private: []string{names.Records, names.Payloads, names.Workers, names.Control}, Allowed: allowed,
		Files:   names.Outputs + "/" + outputs.FilesPrefix,
		Observe: tell, Verify: f.runsPrograms() && f.programsShareUser(),
	})
	return fetcher, func() {
		if err := fetcher.Close(); err != nil {
			log.Warn("this worker's folder in the cache of inputs not removed; the next worker here does that", "error", err)
		}
	}, nil
}

// containerOf returns the account, by [named.AccountURL], and the name of a container that
// --input-container names. The account is empty for a name alone.
func containerOf(given string) (account, name string, err error) {
	if !strings.Contains(given, "://") {
		return "", given, nil
	}
	address, err := named.AccountURL(given)
	if err != nil {
		return "", "", errors.New("has a URL that is not https://ACCOUNT.blob.core.windows.net/CONTAINER, without a signature")
	}
	i := strings.LastIndexByte(address, '/')
	if account, name = address[:i], address[i+1:]; account == "https:/" || name == "" {
		return "", "", fmt.Errorf("%s names no container: give https://ACCOUNT.blob.core.windows.net/CONTAINER", address)
	}
	return account, name, nil
}
