//go:build integration && linux

package identity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/tlsca"
	"github.com/spotworker/spotworker/internal/lab/labtest"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
	"github.com/spotworker/spotworker/internal/test/integration/namespace"
)

const (
	blobName, queueName = azurite.Account + ".blob.core.windows.net", azurite.Account + ".queue.core.windows.net"
	blobHost, queueHost = "127.0.0.2", "127.0.0.3"

	// binVariable holds the path of the files that the outer test prepared for the inner test.
	binVariable = "SPOTWORKER_TEST_BIN"

	container = "archive"
	blobSize  = 64 << 20
	jobs      = 12

	// patience bounds every wait.
	patience = 5 * time.Minute
)

// TestProductionDefaults runs producer and worker with the account's name and
// the identity's client id, as on a VM: a token of the metadata service, storage
// over TLS at Azure's names, scheduled events at Azure's address, a Preempt, a
// drain, and another VM that resumes.
func TestProductionDefaults(t *testing.T) {
	namespace.Run(t, prepare, productionDefaults)
}

// prepare builds the programs, and makes certificates for Azure's names that
// only processes inside the network trust.
func prepare(t *testing.T) []string {
	folder := t.TempDir()
	if _, err := labtest.Build(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	authority, err := tlsca.New("core.windows.net")
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(folder, "ca.pem")
	if err := authority.WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	if err := authority.WriteServer(filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key"), blobName,
		queueName); err != nil {
		t.Fatal(err)
	}
	return []string{binVariable + "=" + folder, "SSL_CERT_FILE=" + ca}
}

func productionDefaults(t *testing.T) {
	folder := os.Getenv(binVariable)
	namespace.Hosts(t, map[string]string{blobName: blobHost, queueName: queueHost})
	azurite.StartCloud(t, azurite.Cloud{
		Certificate: filepath.Join(folder, "server.pem"), Key: filepath.Join(folder, "server.key"),
		BlobHost: blobHost, QueueHost: queueHost,
	})
	identity := imds.Identity{ClientID: uuid.NewString(), ObjectID: uuid.NewString(), ResourceID: "/subscriptions/s/identity"}
	service := newService(t, identity)
	vm := program{folder: folder, client: identity.ClientID}

	service.becomes("spot_0")
	fill(t, identity.ClientID)
	vm.produce(t, jobs)

	first := vm.start(t)
	first.until(t, `"msg":"job committed"`)
	id, err := service.SimulateEviction("spot_0")
	if err != nil {
		t.Fatal(err)
	}
	first.until(t, `"msg":"drained"`)
	if !strings.Contains(first.String(), id) {
		t.Errorf("the worker's log does not name the event %s", id)
	}
	first.end(t)

	service.becomes("spot_1")
	done := len(first.committed())
	if done == jobs {
		t.Fatalf("all %d jobs were done before the eviction, want some left for the other VM", jobs)
	}
	second := vm.start(t)
	second.untilCommitted(t, jobs-done)
	second.end(t)
	if stats := service.VM("spot_1").Stats(); stats.TokenRequests == 0 || stats.Throttled > 0 {
		t.Errorf("metadata service counted %d requests for tokens and %d refused ones, want some and 0", stats.TokenRequests, stats.Throttled)
	}
	t.Logf("%d jobs were committed before the Preempt, %d by the other VM", done, jobs-done)
}

// service is the metadata service at Azure's address, as one VM sees it.
type service struct {
	*imds.Server
	identity imds.Identity

	mu        sync.Mutex
	guest     http.Handler
	tokenless bool // it has no tokens now
}

func newService(t *testing.T, identity imds.Identity) *service {
	t.Helper()
	return newServiceWith(t, identity, imds.Options{})
}

func newServiceWith(t *testing.T, identity imds.Identity, o imds.Options) *service {
	t.Helper()
	s := &service{Server: imds.New(o), identity: identity}
	listener, err := net.Listen("tcp", namespace.MetadataAddress+":80")
	if err != nil {
		t.Fatal(err)
	}
	door := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = door.Serve(listener) }()
	t.Cleanup(func() { _ = door.Close() })
	return s
}

// becomes makes the service answer as for another VM.
func (s *service) becomes(vm string) {
	guest := s.AddVM(imds.VM{Name: vm, ScaleSet: "spot", Identities: []imds.Identity{s.identity}}).Handler()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guest = guest
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	guest, tokenless := s.guest, s.tokenless
	s.mu.Unlock()
	if tokenless && refusesToken(w, r) {
		return
	}
	guest.ServeHTTP(w, r)
}

// fill creates the storage of a deployment, through the identity: the container for data,
// and one blob in it.
func fill(t *testing.T, client string) {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{Account: azurite.Account, ClientID: client})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := account.Container(container).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	blob := account.Container(container).NewBlockBlobClient("blob")
	if _, err := blob.UploadBuffer(t.Context(), bytes.Repeat([]byte("spotwork"), blobSize/8), nil); err != nil {
		t.Fatal(err)
	}
}

// program starts the real programs as they are started on a VM.
type program struct{ folder, client string }

// command has the environment of a VM's unit. No server listens at the proxy: requests
// for events and tokens must not use it.
func (p program) command(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.folder, name), append(arguments, "--account", azurite.Account)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "SSL_CERT_FILE=" + os.Getenv("SSL_CERT_FILE"),
		"AZURE_CLIENT_ID=" + p.client, "SPOTWORKER_DATA_CONTAINER=" + container,
		"SPOTWORKER_CONCURRENCY=1", "SPOTWORKER_LOG_FORMAT=json",
		"HTTP_PROXY=http://127.0.0.9:1", "HTTPS_PROXY=http://127.0.0.9:1", "NO_PROXY=" + blobName + "," + queueName,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (p program) produce(t *testing.T, jobs int) {
	t.Helper()
	var lines bytes.Buffer
	for n := range jobs {
		fmt.Fprintf(&lines, `{"id":"job-%d","kind":"digest","payload":{"container":%q,"blob":"blob"}}`+"\n", n, container)
	}
	cmd := p.command("producer", "lines")
	cmd.Stdin = &lines
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("producer: %v: %s", err, said)
	}
}

// running is a worker process and its log.
type running struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

func (p program) start(t *testing.T) *running {
	t.Helper()
	r := &running{cmd: p.command("worker"), ended: make(chan struct{})}
	out, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go r.read(out)
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("log of the worker:\n%s", r.String())
		}
	})
	return r
}

func (r *running) read(out io.Reader) {
	defer close(r.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		r.mu.Lock()
		r.log.Write(append(lines.Bytes(), '\n'))
		r.mu.Unlock()
	}
}

func (r *running) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// until waits for a pattern in the log.
func (r *running) until(t *testing.T, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(patience); !wanted.MatchString(r.String()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("worker did not log %s within %s", pattern, patience)
		}
	}
}

// committed returns the ids of the jobs that this worker committed.
func (r *running) committed() map[string]bool {
	ids := map[string]bool{}
	for line := range strings.Lines(r.String()) {
		var entry struct {
			Msg   string `json:"msg"`
			JobID string `json:"job_id"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "job committed" {
			ids[entry.JobID] = true
		}
	}
	return ids
}

// untilCommitted waits until this worker has committed that many jobs.
func (r *running) untilCommitted(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(r.committed()) < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs are done within %s", len(r.committed()), n, patience)
		}
	}
}

// end sends SIGTERM and demands exit code 0.
func (r *running) end(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("worker ended with %v after SIGTERM, want exit code 0", err)
	}
}
