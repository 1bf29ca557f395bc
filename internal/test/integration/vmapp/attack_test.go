//go:build integration && linux

package vmapp

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/attack.py
var attackProgram string

// attackKind is a kind of the test's package, beside the example's.
const attackKind = `"attack": {"command": ["python3", "attack.py"], "directory": ".", "max_silence": "5m"},
    `

// attacked: a job can neither reach the worker nor another job, nor keep the worker
// from hearing of an eviction.
func (m *machine) attacked(t *testing.T) {
	const vm = "spot_3"
	for _, folder := range []string{"/dev/shm", "/dev/mqueue"} {
		marker, err := os.OpenFile(folder+"/spotworker-attack", os.O_CREATE|os.O_RDWR, 0o644) // a file in /dev/mqueue is a queue
		if err != nil {
			t.Fatal(err)
		}
		_ = marker.Close()
		defer os.Remove(marker.Name())
	}
	// With the worker's own user the same program shows that the attacks are real.
	m.deploy(t, published("1.2.0", archiveOf(newVersion), m.azure.settings(vm, slowly, "SPOTWORKER_CONCURRENCY=4",
		"SPOTWORKER_PROGRAM_USERS=none")))
	m.azure.put(t, "victim", longFile)
	awaitLogged(t, workerLog, 0, `"msg":"checkpoint saved"`, `"job_id":"victim"`)
	var succeeded []string
	if err := json.Unmarshal([]byte(m.azure.attack(t, "attack-shared", vm)), &succeeded); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"lists the jobs", "finds other payloads", "approves events"} {
		if !slices.Contains(succeeded, want) {
			t.Errorf("with the worker's user a job %q, want also that it %s: else the test shows nothing", succeeded, want)
		}
	}
	for _, never := range []string{
		"reads the worker's environ", "reads the worker's mem", "becomes root", "becomes another user",
		"stores a key for the next job", "reads the machine's shared memory", "sees the machine's message queues",
	} {
		if slices.Contains(succeeded, never) {
			t.Errorf("with the worker's user a job %s", never)
		}
	}

	seen := len(logged(workerLog))
	m.deploy(t, published("1.2.1", archiveOf(newVersion), m.azure.settings(vm, slowly, "SPOTWORKER_CONCURRENCY=4")))
	awaitLogged(t, workerLog, seen, `"msg":"job started"`, `"job_id":"victim"`)
	if got := m.azure.attack(t, "attack", vm); got != "[]" {
		t.Errorf("a job's attacks that succeeded = %s, want none", got)
	}
	m.azure.produce(t, "put", "--kind", "attack", "--id", "flood", "--payload", m.azure.attackPayload(t, vm, 60))
	await(t, "progress of the flood", func() bool {
		r, err := m.azure.stores.Records.Read(t.Context(), "flood")
		return err == nil && r.Fraction > 0
	})
	seen = len(logged(workerLog)) // the update before was a drain too
	begun := time.Now()
	m.azure.evict(t, vm)
	awaitLogged(t, workerLog, seen, `"msg":"drained"`)
	if took := time.Since(begun); took > 30*time.Second { // how long a notice lasts
		t.Errorf("eviction during a flood of requests to drained = %s, want it as without", took)
	}
	m.azure.cancel(t, "victim", "flood")
	m.remove(t)
}

// metadata returns the address of a VM's metadata service.
func (a *localAzure) metadata(t *testing.T, vm string) *url.URL {
	t.Helper()
	u, err := url.Parse(a.endpoints[vm])
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// attackPayload tells the attacking program where the metadata service is.
func (a *localAzure) attackPayload(t *testing.T, vm string, seconds int) string {
	t.Helper()
	u := a.metadata(t, vm)
	return fmt.Sprintf(`{"host":%q,"port":%s,"path":%q,"seconds":%d}`, u.Hostname(), u.Port(), u.Path, seconds)
}

// attack runs the attacking program as a job, and returns its result.
func (a *localAzure) attack(t *testing.T, id, vm string) string {
	t.Helper()
	out := a.produce(t, "--wait", "put", "--kind", "attack", "--id", id, "--payload", a.attackPayload(t, vm, 0))
	for line := range strings.Lines(out) {
		if got, result, ok := strings.Cut(line, "\t"); ok && got == id {
			return strings.TrimSpace(result)
		}
	}
	t.Fatalf("producer printed no result of %s:\n%s", id, out)
	return ""
}
