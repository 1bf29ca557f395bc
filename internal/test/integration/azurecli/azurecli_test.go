//go:build integration && linux

package azurecli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/integration/namespace"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// folderVariable says where prepare put the programs, in bin as make build does.
const folderVariable = "SPOTWORKER_TEST_FOLDER"

// TestAzureCLI starts lab up and evicts a worker with the commands that it prints,
// once for each kind of scale set. No packet may leave the machine.
func TestAzureCLI(t *testing.T) {
	proof.Only(t, "TestNewerAzureCLI is its quick part")
	namespace.Run(t, prepare, func(t *testing.T) { evictions(t, uniform) })
}

// evictions runs a test with a Uniform scale set and, in full, flexible.
func evictions(t *testing.T, uniform func(*testing.T)) {
	if before := unroutable(t); before != 0 {
		t.Fatalf("%d packets had no route before anything was started, want 0", before)
	}
	t.Run("uniform", uniform)
	if proof.Full() {
		t.Run("flexible", flexible)
	}
	if got := unroutable(t); got != 0 {
		t.Errorf("%d packets had no route: something tried to leave this machine", got)
	}
}

func prepare(t *testing.T) []string {
	need.Command(t, "az")
	return programs(t)
}

// programs builds the programs, and returns the variable that says where.
func programs(t *testing.T) []string {
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(folder, "bin")+"/", "./cmd/worker", "./cmd/producer",
		"./cmd/lab")
	build.Dir = repository.Root(t)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v: %s", err, said)
	}
	return []string{folderVariable + "=" + folder}
}

// uniform: another VM's worker resumes the job that the evicted worker released.
func uniform(t *testing.T) {
	up, id, content := evictInstance(t)
	second := up.start(t, "/vms/spot_2\n")
	second.until(t, `"msg":"job started".*"job_id":"`+id+`".*"resumed_at":0\.\d`)
	second.until(t, `"msg":"job committed".*"job_id":"`+id+`"`)
	up.wantDigest(t, id, content)

	// The producer's VM is of regular priority.
	producer := strings.Replace(up.block(t, "vmss simulate-eviction"),
		"vmss simulate-eviction --resource-group rg --name spot --instance-id 1",
		"vm simulate-eviction --resource-group rg --name producer", 1)
	if said, err := up.run(t, producer); err == nil || !strings.Contains(said, "OperationNotAllowed") {
		t.Errorf("az vm simulate-eviction of a regular VM = %v and says %q, want OperationNotAllowed", err, said)
	}
}

// evictInstance: az puts a message of its own, a worker takes it for a digest job, az vmss
// evicts the worker, and the worker releases the job. It returns the message's id and content.
func evictInstance(t *testing.T) (u *up, id, content string) {
	up := startUp(t, "--files", "1", "--job-time", "2m") // longer than az takes to evict the worker
	up.signIn(t)
	first := up.start(t, "/vms/spot_1\n")
	first.until(t, `"msg":"state changed".*"to":"process"`)

	var put struct{ ID, Content string }
	said := up.paste(t, "storage message put")
	if _, answer, warned := strings.Cut(said, "\n{"); warned { // newer releases call the command a preview
		said = "{" + answer
	}
	if err := json.Unmarshal([]byte(said), &put); err != nil || put.ID == "" {
		t.Fatalf("az storage message put says %q (%v), want a message with its id", said, err)
	}
	first.until(t, `"msg":"checkpoint saved".*"job_id":"`+put.ID+`"`) // there is progress to hand over
	up.paste(t, "vmss simulate-eviction")
	up.until(t, `Eviction notice: Preempt of spot_1`)
	first.until(t, `"msg":"job released".*"job_id":"`+put.ID+`"`)
	first.until(t, `"msg":"drained"`)
	up.until(t, `spot_1 got the notice from its metadata service`)
	return up, put.ID, put.Content
}

// flexible: az vm evicts a worker.
func flexible(t *testing.T) {
	up := startUp(t, "--flexible", "--files", "0", "--eviction-delay", "0s")
	up.signIn(t)
	worker := up.start(t, "/vms/spotworker-spot_00000001\n")
	worker.until(t, `"msg":"state changed".*"to":"process"`)
	up.paste(t, "vm simulate-eviction")
	up.until(t, `Eviction notice: Preempt of spotworker-spot_00000001`)
	worker.until(t, `"msg":"drained"`)
}

// wantDigest compares a job's result with the blob that the message named.
func (u *up) wantDigest(t *testing.T, id, content string) {
	t.Helper()
	var named struct{ Container, Blob string }
	if err := json.Unmarshal([]byte(content), &named); err != nil || named.Blob == "" {
		t.Fatalf("content of the message = %q (%v), want what az was told", content, err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: u.connectionString(t)})
	if err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	records := deployment.StoresOf(account, names).Records
	record, err := records.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if record.Status != checkpoint.Done || record.Interruptions != 1 || record.Failures != 0 {
		t.Errorf("job of az = %s, %d interruptions, %d failures, want done, 1, 0", record.Status, record.Interruptions, record.Failures)
	}
	text, err := records.Result(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(download(t, account.Container(named.Container).NewBlobClient(named.Blob)))
	if want := hex.EncodeToString(sum[:]); !strings.Contains(string(text), want) {
		t.Errorf("result = %s, want the digest %s", text, want)
	}
}

// download reads a blob in ranges, all at the same time: one after the other they take as long as the
// job, which is longer than one call may take.
func download(t *testing.T, source *blob.Client) []byte {
	t.Helper()
	properties, err := source.GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, *properties.ContentLength)
	if _, err := source.DownloadBuffer(t.Context(), content, &blob.DownloadBufferOptions{BlockSize: 4 << 20, Concurrency: 8}); err != nil {
		t.Fatal(err)
	}
	return content
}

// unroutable counts the packets for which this network had no way, which is any
// that would have left the machine.
func unroutable(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	return counter(t, string(text), "Ip:", "OutNoRoutes")
}
