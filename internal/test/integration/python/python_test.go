//go:build integration

package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
	"github.com/spotworker/spotworker/job"
)

// TestClient: what Python puts the worker runs, and Python reads; what Go put Python reads, and
// the other way round.
func TestClient(t *testing.T) {
	interpreter := interpreter(t)
	for name, connect := range map[string]func(t *testing.T) string{
		"emulator": func(t *testing.T) string {
			server := storage.New(storage.Options{})
			connection, err := server.Listen(storage.Addresses{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			return connection
		},
		"Azurite": func(t *testing.T) string { return azurite.Start(t) },
	} {
		t.Run(name, func(t *testing.T) { testClient(t, interpreter, connect(t)) })
	}
}

// interpreter returns a Python that has Azure's libraries for storage.
func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import azure.storage.blob, azure.storage.queue").Run() == nil {
			return name
		}
	}
	need.Missing(t, "Python with azure-storage-blob and azure-storage-queue (Debian's azure-cli has both)")
	return ""
}

func testClient(t *testing.T, interpreter, connection string) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
	c, err := client.Open(client.Options{ConnectionString: connection})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	prepare(t, connection)
	if _, err := c.Put(t.Context(), client.Spec{ID: "job-of-go", Kind: "echo", Payload: map[string]string{"from": "Go"}}); err != nil {
		t.Fatal(err)
	}
	forever := &stoppedJobs{}
	startWorker(t, forever)

	facts, err := json.Marshal(map[string]any{"job_of_go": "job-of-go", "newer_record": newerRecord, "shards": placements()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, interpreter, "-W", "error::SyntaxWarning", "client_test.py")
	command.Dir = filepath.Join(repository.Root(t), "python")
	command.Env = append(os.Environ(), "SPOTWORKER_FACTS="+string(facts), "PYTHONDONTWRITEBYTECODE=1")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		t.Fatalf("client_test.py: %v\n%s", err, &output)
	}
	t.Logf("client_test.py:\n%s", &output)

	checkJobs(t, c)
	_, ofAgain, _ := strings.Cut(output.String(), "ran-again ")
	again, _, _ := strings.Cut(ofAgain, "\n")
	j, err := c.Get(t.Context(), again)
	var outcomes []string
	for _, run := range j.Runs {
		outcomes = append(outcomes, run.Outcome)
	}
	if want := []string{"done", "again", "done", "again", "done", "again", "poison"}; err != nil || !slices.Equal(outcomes, want) {
		t.Errorf("job %s has the outcomes %q, %v, want %q", again, outcomes, err, want)
	}
	_, after, _ := strings.Cut(output.String(), "cancelled ")
	id, _, _ := strings.Cut(after, "\n")
	for end := time.Now().Add(5 * time.Minute); !forever.has(id); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the handler of the cancelled job %s was not stopped within 5 minutes", id)
		}
	}
}

// checkJobs reads with Go the jobs that Python put.
func checkJobs(t *testing.T, c *client.Client) {
	t.Helper()
	found := map[client.Status]int{}
	for j, err := range c.List(t.Context(), client.Filter{}) {
		if errors.Is(err, client.ErrNewerVersion) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(j.ID, "many-") {
			var n int
			if result, err := c.Result(t.Context(), j.ID); err != nil || json.Unmarshal(result, &n) != nil ||
				!strings.HasPrefix(j.ID, fmt.Sprintf("many-%d-", n)) {
				t.Errorf("result of %s = %q, %v", j.ID, result, err)
			}
			found[j.Status]++
		}
	}
	if found[client.StatusDone] != 60 {
		t.Errorf("jobs of put_many by status = %v, want 60 done", found)
	}
}

const newerRecord = "newer-record"

// prepare makes a file for inputs and a record of a newer version.
func prepare(t *testing.T, connection string) {
	t.Helper()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: connection})
	if err != nil {
		t.Fatal(err)
	}
	data := account.Container("data")
	if _, err := data.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := data.NewBlockBlobClient("größe 1.csv").UploadBuffer(t.Context(), []byte("a,b\n"), nil); err != nil {
		t.Fatal(err)
	}
	names, err := azure.NamesFor("spotworker", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = account.Container(names.Records).NewBlockBlobClient(jobid.Path(newerRecord)).UploadBuffer(t.Context(), nil,
		&blockblob.UploadBufferOptions{Metadata: map[string]*string{"v": new("9"), "status": new("running"), "kind": new("echo")}})
	if err != nil {
		t.Fatal(err)
	}
}

// placement is the queue of a job by Go.
type placement struct {
	ID    string `json:"id"`
	Of    int    `json:"of"`
	Shard int    `json:"shard"`
}

func placements() (list []placement) {
	for i := range 100 {
		id, of := fmt.Sprintf("job-%d", i), 1+i%16
		list = append(list, placement{id, of, queue.ShardOf(id, of)})
	}
	return list
}

// stoppedJobs are the jobs of the kind forever whose handler was stopped.
type stoppedJobs struct {
	mu  sync.Mutex
	ids []string
}

func (s *stoppedJobs) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.ids, id)
}

// Run runs until it is stopped.
func (s *stoppedJobs) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: []byte("state"), Text: "größer"})
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, j.ID)
	return nil, context.Cause(ctx)
}

// stores stores outputs and logs.
func stores(ctx context.Context, j *job.Job) ([]byte, error) {
	for n := range 200 {
		job.Logger(ctx).InfoContext(ctx, "größer\\als\nlog", "n", n)
	}
	return nil, errors.Join(j.SendOutput(ctx, "a.txt", strings.NewReader("größe")), j.SendOutput(ctx, "sub/b.txt", strings.NewReader("")))
}

// readInputs returns the content of the input files by name.
func readInputs(_ context.Context, j *job.Job) ([]byte, error) {
	files := map[string]string{}
	for _, f := range j.Inputs() {
		content, err := os.ReadFile(f.File)
		if err != nil {
			return nil, err
		}
		files[f.Name] = string(content)
	}
	return json.Marshal(files)
}

// startWorker runs a worker of these kinds until the test is over.
func startWorker(t *testing.T, forever *stoppedJobs) {
	t.Helper()
	kinds := job.Kinds{
		"echo":    job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return j.Payload, nil }),
		"forever": forever,
		"fails": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("größer als\nerlaubt"))
		}),
		"deadline": job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) { return json.Marshal(j.Deadline.UTC()) }),
		"files":    job.HandlerFunc(readInputs),
		"stores":   job.HandlerFunc(stores),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- spotworker.Run(ctx, spotworker.Options{
			Kinds: kinds, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			Arguments: []string{"--metadata-endpoint", "none", "--listen", "none", "--concurrency", "8", "--checkpoint-interval", "1s"},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
}

// TestWheel: the package is built as a wheel, and has both parts and its types where it is
// installed.
func TestWheel(t *testing.T) {
	python := interpreter(t)
	folder := t.TempDir()
	if err := os.CopyFS(filepath.Join(folder, "source"), os.DirFS(filepath.Join(repository.Root(t), "python"))); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) string {
		command := exec.CommandContext(t.Context(), python, arguments...)
		command.Dir = folder
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("python %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
		return string(output)
	}
	if exec.CommandContext(t.Context(), python, "-c", "import setuptools, pip").Run() != nil {
		need.Missing(t, "Python with pip and setuptools")
	}
	run("-m", "pip", "wheel", "./source", "--no-deps", "--no-index", "--no-build-isolation", "-q", "-w", "wheels")
	var left []string
	err := filepath.WalkDir(filepath.Join(folder, "source"), func(path string, d os.DirEntry, err error) error {
		if name := d.Name(); d.IsDir() && (name == "build" || name == "__pycache__" || strings.HasSuffix(name, ".egg-info")) {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("the build leaves %q in the source, %v", left, err)
	}
	run("-m", "pip", "install", "--no-deps", "--no-index", "-q", "--target", "site", "--find-links", "wheels", "spotworker")
	got := run("-c", "import sys; sys.path.insert(0, 'site'); import os, spotworker, spotworker.client as c; "+
		"folder = os.path.dirname(spotworker.__file__); print(folder, spotworker.job.__name__, c.Client.__name__, os.listdir(folder)); "+
		"import importlib.metadata as m; print('one version' if m.version('spotworker') == spotworker.__version__ else m.version('spotworker'))")
	for _, want := range []string{filepath.Join("site", "spotworker"), "job Client", "py.typed", "one version"} {
		if !strings.Contains(got, want) {
			t.Errorf("installed package says %q, want %q in it", got, want)
		}
	}
}
