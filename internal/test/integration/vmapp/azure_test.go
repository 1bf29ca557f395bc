//go:build integration && linux

package vmapp

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// localAzure is lab up, in the container.
type localAzure struct {
	connection string
	endpoints  map[string]string // of the metadata service, by VM; of a VM without eviction
	stores     *deployment.Stores
}

var (
	connectionLine = regexp.MustCompile(`export AZURE_STORAGE_CONNECTION_STRING='([^']*)'`)
	endpointLine   = regexp.MustCompile(`export SPOTWORKER_METADATA_ENDPOINT=(\S*/(spot_\d+)\S*)`)
)

func startAzure(t *testing.T, vms int) *localAzure {
	t.Helper()
	cmd := exec.Command(filepath.Join(shared, "lab"), "up", "--files=0", fmt.Sprintf("--vms=%d", vms))
	var out labtest.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await(t, "lab up", func() bool { return strings.Contains(out.String(), "lab withdraw") })
	a := &localAzure{endpoints: map[string]string{}}
	if found := connectionLine.FindStringSubmatch(out.String()); found != nil {
		a.connection = found[1]
	}
	for _, found := range endpointLine.FindAllStringSubmatch(out.String(), -1) {
		a.endpoints[found[2]] = found[1]
	}
	if a.connection == "" || len(a.endpoints) != vms {
		t.Fatalf("lab up says nothing that can be used:\n%s", out.String())
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: a.connection})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	a.stores = deployment.StoresOf(account, names)
	return a
}

// lastLine is how every worker.env ends.
const lastLine = "# end of worker.env"

// settings is a worker.env that connects a VM's worker to the local Azure. The VM must not be
// evicted: its worker would see the notice for 30 s, and take no work.
func (a *localAzure) settings(vm string, more ...string) string {
	if a.endpoints[vm] == "" {
		panic(vm + " was evicted or never existed: give the test another VM")
	}
	lines := append([]string{
		"# Settings of the workers, as a deployment writes them.",
		"AZURE_STORAGE_CONNECTION_STRING=" + a.connection,
		"SPOTWORKER_METADATA_ENDPOINT=" + a.endpoints[vm],
		"SPOTWORKER_LOG_FORMAT=json", "SPOTWORKER_LOG_LEVEL=debug", "SPOTWORKER_CHECKPOINT_INTERVAL=500ms",
	}, more...)
	return strings.Join(append(lines, lastLine), "\n") + "\n"
}

// put puts a job on the queue: the statistics of one of the package's files.
func (a *localAzure) put(t *testing.T, id, file string) {
	t.Helper()
	a.produce(t, "put", "--kind", "logstats", "--id", id, "--payload", fmt.Sprintf(`{"file":%q}`, file))
}

// result waits for a job that was put, and returns its result.
func (a *localAzure) result(t *testing.T, id, file string) string {
	t.Helper()
	out := a.produce(t, "--wait", "put", "--kind", "logstats", "--id", id, "--payload", fmt.Sprintf(`{"file":%q}`, file))
	for line := range strings.Lines(out) {
		if got, result, ok := strings.Cut(line, "\t"); ok && got == id {
			return strings.TrimSpace(result)
		}
	}
	t.Fatalf("producer printed no result of %s:\n%s", id, out)
	return ""
}

func (a *localAzure) produce(t *testing.T, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // a result may take as long as two waits
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(shared, "producer"), arguments...)
	cmd.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+a.connection)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("producer %s: %v (%v): %s", strings.Join(arguments, " "), err, ctx.Err(), stderr.String())
	}
	return string(out)
}

// evict announces the eviction of a VM, which no later test can use.
func (a *localAzure) evict(t *testing.T, vm string) {
	t.Helper()
	command(t, filepath.Join(shared, "lab"), "evict", vm)
	delete(a.endpoints, vm)
}

func (a *localAzure) record(t *testing.T, id string) checkpoint.Record {
	t.Helper()
	r, err := a.stores.Records.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cancel cancels jobs that would take the slots of later workers.
func (a *localAzure) cancel(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := a.stores.Records.Cancel(t.Context(), id, "test", "its test is over", false); err != nil {
			t.Fatal(err)
		}
	}
}
