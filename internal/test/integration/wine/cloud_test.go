//go:build integration

package wine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/guard"
)

// patience bounds every wait: Wine on a busy machine is slow, not stuck.
const patience = 2 * time.Minute

// cloud is an Azure in this process, with a VM named vm_0.
type cloud struct {
	t          *testing.T
	connection string
	endpoint   string // of the VM's metadata
	metadata   *imds.Server
	stores     *deployment.Stores
}

const testVM = "vm_0"

func newCloud(t *testing.T) *cloud {
	t.Helper()
	server := storage.New(storage.Options{})
	t.Cleanup(func() { _ = server.Close() })
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{t: t, connection: connection, metadata: imds.New(imds.Options{})}
	service := httptest.NewServer(c.metadata.Handler())
	t.Cleanup(service.Close)
	c.metadata.AddVM(imds.VM{Name: testVM, Priority: "Spot"})
	c.endpoint = guard.Loopback(t, service.URL+"/vms/"+testVM)
	c.makeStores()
	return c
}

func (c *cloud) makeStores() {
	c.t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: c.connection})
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		c.t.Fatal(err)
	}
	c.stores = deployment.StoresOf(account, names)
	for _, q := range []*queue.Queue{c.stores.Queue, c.stores.Poison} {
		if err := q.Create(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, name := range []string{names.Records, names.Payloads, names.Workers} {
		if _, err := account.Container(name).Create(c.t.Context(), nil); err != nil {
			c.t.Fatal(err)
		}
	}
}

// put enqueues a job.
func (c *cloud) put(id, kind, payload string) {
	c.t.Helper()
	p, err := queue.JSONPayload([]byte(payload))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.stores.Queue.Put(c.t.Context(), queue.Envelope{ID: id, Kind: kind, Payload: p, EnqueuedAt: time.Now()}, 0); err != nil {
		c.t.Fatal(err)
	}
}

// record returns a job's record, the zero one before it has one.
func (c *cloud) record(id string) checkpoint.Record {
	c.t.Helper()
	r, err := c.stores.Records.Read(c.t.Context(), id)
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		c.t.Fatal(err)
	}
	return r
}

// result returns a job's result.
func (c *cloud) result(id string) string {
	c.t.Helper()
	data, err := c.stores.Records.Result(c.t.Context(), id)
	if err != nil {
		c.t.Errorf("result of job %s: %v", id, err)
	}
	return string(data)
}

// await waits for a condition.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// worker is a running worker.exe.
type worker struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and its log was read

	mu    sync.Mutex
	lines []map[string]any
}

// start starts a worker on the VM; see [cloud.startWith].
func (c *cloud) start(w *Windows, program string, args ...string) *worker {
	c.t.Helper()
	return c.startWith(w, nil, program, args...)
}

// startWith starts a worker on the VM with some more variables. Its addresses are
// loopback only. It is killed at the end of the test.
func (c *cloud) startWith(w *Windows, variables []string, program string, args ...string) *worker {
	c.t.Helper()
	args = append(args, "--metadata-endpoint="+c.endpoint, "--listen=127.0.0.1:0", "--log-format=json", "--log-level=debug")
	started := &worker{cmd: w.Command(program, args...), ended: make(chan struct{})}
	started.cmd.Env = append(append(started.cmd.Env, "AZURE_STORAGE_CONNECTION_STRING="+c.connection), variables...)
	stderr, err := started.cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := started.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(started.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			started.add(lines.Bytes())
		}
		_ = started.cmd.Wait()
	}()
	c.t.Cleanup(func() {
		started.kill()
		if c.t.Failed() {
			c.t.Logf("log of worker %s:", program)
			for _, line := range started.lines {
				c.t.Log(line)
			}
		}
	})
	return started
}

// kill kills the worker, if it has not ended, and returns when its log was read.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // fails only if it has ended
	<-w.ended
}

func (w *worker) add(text []byte) {
	var line map[string]any
	if json.Unmarshal(text, &line) != nil {
		line = map[string]any{"text": string(text)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// says reports whether a line of the log has that text in it.
func (w *worker) says(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.lines, func(line map[string]any) bool { return strings.Contains(fmt.Sprint(line), text) })
}

// kindsFile writes a kinds file into a folder and returns its path.
func kindsFile(t *testing.T, dir string, kinds map[string]any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"kinds": kinds})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "kinds.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
