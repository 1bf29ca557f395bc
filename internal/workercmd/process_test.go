package workercmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/guard"
	"github.com/spotworker/spotworker/job"
)

// patience is how long a test waits for an event that must come: a busy machine is slow,
// not stuck.
const patience = 2 * time.Minute

// testKinds are the kinds of the program testworker.
var testKinds = job.Kinds{
	"polite": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		j.Report(job.Progress{State: []byte("here")})
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}),
	"counts": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
				j.Report(job.Progress{State: fmt.Append(nil, n), Fraction: min(float64(n)/1e4, 1)})
			}
		}
	}),
	"holds": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		time.Sleep(200 * time.Millisecond) // with the payload in memory
		return nil, nil
	}),
	"refused": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, job.Permanent(errors.New("no")) }),
	"short":   job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, nil }),
	"stubborn": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
		for { // even after the context has ended
			time.Sleep(time.Hour)
		}
	}),
}

// cloud is a local Azure with one VM and the resources of a deployment.
type cloud struct {
	storage    *storage.Server
	metadata   *imds.Server
	connection string
	endpoint   string // of the VM's metadata
	names      azure.Names
	stores     *deployment.Stores
	coverage   string // folder for the counts of covered workers, which print a warning without a folder
}

const testVM = "vm_0"

// newCloud starts one. Without stores it has no queues and containers yet.
func newCloud(t *testing.T, withStores bool) *cloud {
	t.Helper()
	c := &cloud{storage: storage.New(storage.Options{}), metadata: imds.New(imds.Options{}), coverage: t.TempDir()}
	var err error
	if c.connection, err = c.storage.Listen(storage.Addresses{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.storage.Close() })
	c.metadata.AddVM(imds.VM{Name: testVM, VMID: "11112222-0000-0000-0000-000000000000", Priority: "Spot"})
	c.endpoint = c.serve(t) + "/vms/" + testVM
	if c.names, err = azure.NamesFor(azure.DefaultPrefix, ""); err != nil {
		t.Fatal(err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: c.storage.ConnectionString(), Transport: c.storage.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	c.stores = deployment.StoresOf(account, c.names)
	if withStores {
		containers := map[string]*container.Client{}
		for _, name := range []string{c.names.Records, c.names.Payloads, c.names.Workers} {
			containers[name] = account.Container(name)
		}
		if err := producer.Create(t.Context(), []*queue.Queue{c.stores.Queue, c.stores.Poison}, containers); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cloud) put(t *testing.T, id, kind string) {
	t.Helper()
	if err := c.stores.Queue.Put(t.Context(), queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now()}, 0); err != nil {
		t.Fatal(err)
	}
}

// workerProcess is a real worker process.
type workerProcess struct {
	input io.Closer // standard input, of a worker that ends with it
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and its log was read
	news  chan struct{} // holds one: it logged something

	mu    sync.Mutex
	lines []map[string]any
}

// start starts a worker on the VM. Its addresses are loopback only.
func (c *cloud) start(t *testing.T, args ...string) *workerProcess {
	t.Helper()
	return c.startWith(t, nil, args...)
}

// startWith starts a worker with some more variables.
func (c *cloud) startWith(t *testing.T, variables []string, args ...string) *workerProcess {
	t.Helper()
	endpoint := guard.Loopback(t, c.endpoint)
	args = append(args, "--metadata-endpoint="+endpoint, "--listen=127.0.0.1:0", "--log-format=json", "--log-level=debug")
	w := &workerProcess{cmd: exec.Command("testworker", args...), ended: make(chan struct{}), news: make(chan struct{}, 1)}
	w.cmd.Env = c.environment(variables)
	if slices.Contains(args, "--stop-with-stdin") {
		var err error
		if w.input, err = w.cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	stderr, err := w.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go w.read(stderr)
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // fails only if it has ended
		<-w.ended
	})
	return w
}

// environment is all that a worker sees of ours, and what leads it to the cloud.
func (c *cloud) environment(variables []string) []string {
	return append(variables, "PATH="+os.Getenv("PATH"), "AZURE_STORAGE_CONNECTION_STRING="+c.connection, "GOCOVERDIR="+c.coverage)
}

func (w *workerProcess) read(from io.Reader) {
	defer close(w.ended)
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			w.mu.Lock()
			w.lines = append(w.lines, line)
			w.mu.Unlock()
		}
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	_ = w.cmd.Wait()
}

// find returns the log's lines with that message.
func (w *workerProcess) find(msg string) (found []map[string]any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

// until waits for a line with that message and returns it.
func (w *workerProcess) until(t *testing.T, msg string) map[string]any {
	t.Helper()
	return w.untilOf(t, msg, "")
}

// untilOf waits for a line with that message of a job, or of any job if the id is empty, and
// returns it.
func (w *workerProcess) untilOf(t *testing.T, msg, jobID string) map[string]any {
	t.Helper()
	for late := time.After(patience); ; {
		for _, line := range w.find(msg) {
			if jobID == "" || line["job_id"] == jobID {
				return line
			}
		}
		select {
		case <-w.news:
		case <-late:
			t.Fatalf("%q: not within %s; the log is %v", msg, patience, w.lines)
		}
	}
}

// untilState waits until the worker has entered a state.
func (w *workerProcess) untilState(t *testing.T, state string) {
	t.Helper()
	for late := time.After(patience); !slices.Contains(w.states(), state); {
		select {
		case <-w.news:
		case <-late:
			t.Fatalf("state %s: not within %s; states were %q", state, patience, w.states())
		}
	}
}

// states returns the states that the worker entered, in order.
func (w *workerProcess) states() (states []string) {
	for _, line := range w.find("state changed") {
		states = append(states, line["to"].(string))
	}
	return states
}

// untilRecord waits until a job's record is of that sort, and returns it.
func (c *cloud) untilRecord(t *testing.T, id, what string, is func(checkpoint.Record) bool) checkpoint.Record {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r, err := c.stores.Records.Read(t.Context(), id)
		if err == nil && is(r) {
			return r
		}
		if time.Now().After(late) {
			t.Fatalf("record of job %s: not %s within %s: %+v, %v", id, what, patience, r, err)
		}
	}
}

func (w *workerProcess) terminate(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end of the process and returns how it ended.
func (w *workerProcess) end(t *testing.T) *os.ProcessState {
	t.Helper()
	select {
	case <-w.ended:
		return w.cmd.ProcessState
	case <-time.After(patience):
		t.Fatalf("worker has not ended within %s; states were %q", patience, w.states())
		return nil
	}
}

// ask asks the worker's server, and returns its answer.
func (w *workerProcess) ask(t *testing.T, path string) string {
	t.Helper()
	address := w.until(t, "health and metrics are served")["address"].(string)
	client := &http.Client{Transport: guard.Transport(), Timeout: patience}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %s, %v", path, resp.Status, err)
	}
	return string(body)
}

func (w *workerProcess) demandHealth(t *testing.T, when string) {
	t.Helper()
	if got, want := strings.TrimSpace(w.ask(t, "/healthz")), `{"ApplicationHealthState":"Healthy"}`; got != want {
		t.Errorf("health %s = %s, want %s", when, got, want)
	}
}

func (w *workerProcess) demandMetrics(t *testing.T, want ...string) {
	t.Helper()
	text := w.ask(t, "/metrics")
	for _, line := range want {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("metrics have no line %q", line)
		}
	}
}
