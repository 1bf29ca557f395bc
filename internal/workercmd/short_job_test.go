package workercmd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/google/uuid"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/job"
)

// shortJobSlots is how many jobs run at once when short jobs are measured.
const shortJobSlots = 16

// shortJobs are jobs on an emulated queue whose handler does nothing.
type shortJobs struct {
	server *storage.Server
	names  azure.Names
	jobs   int

	deleted atomic.Int64  // messages
	done    chan struct{} // closed when all messages are deleted
}

// newShortJobs puts that many jobs with payloads of 100 bytes.
func newShortJobs(tb testing.TB, jobs int) *shortJobs {
	tb.Helper()
	s := &shortJobs{server: storage.New(storage.Options{}), jobs: jobs, done: make(chan struct{})}
	var err error
	if s.names, err = azure.NamesFor(azure.DefaultPrefix, ""); err != nil {
		tb.Fatal(err)
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: s.server.ConnectionString(), Transport: s.server.Transport()})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	for _, name := range []string{s.names.Records, s.names.Payloads, s.names.Workers} {
		if _, err := account.Container(name).Create(ctx, nil); err != nil {
			tb.Fatal(err)
		}
	}
	q := queue.New(account.Queue(s.names.Queue), s.names.Queue)
	for _, q := range []*queue.Queue{q, queue.New(account.Queue(s.names.Poison), s.names.Poison)} {
		if err := q.Create(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	payload, err := queue.JSONPayload([]byte(`"` + strings.Repeat("x", 98) + `"`))
	if err != nil {
		tb.Fatal(err)
	}
	for range jobs {
		if err := q.Put(ctx, queue.Envelope{ID: uuid.Must(uuid.NewV7()).String(), Kind: "short", Payload: payload, EnqueuedAt: time.Now()},
			0); err != nil {
			tb.Fatal(err)
		}
	}
	s.server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == "DeleteMessage" && s.deleted.Add(1) == int64(s.jobs) {
			close(s.done)
		}
		return storage.Fault{}
	})
	return s
}

// runWorker does the jobs with a worker as the command makes it, from its flags: with
// its log, which goes to a file, and its metrics. onReady is called before the first
// call.
func (s *shortJobs) runWorker(tb testing.TB, onReady func()) {
	tb.Helper()
	tb.Setenv("AZURE_STORAGE_CONNECTION_STRING", s.server.ConnectionString())
	var f flags
	arguments := []string{"--metadata-endpoint=none", "--listen=none", "--log-format=json", "--concurrency=16"}
	if _, err := (cli.Program{Name: "worker", Vars: map[string]string{"metadata_endpoint": "none", "listen_port": "0"}}).Parse(&f, arguments,
		io.Discard); err != nil {
		tb.Fatal(err)
	}
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close()
	log, closeLog := f.OpenLog(out)
	defer closeLog()
	f.Transport = s.server.Transport()
	kinds := job.Kinds{"short": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) { return nil, nil })}
	w, closeKinds, err := f.worker(kinds, log, f.telemetry(log, systemdManager), newIdentity("host", "0", ""))
	if err != nil {
		tb.Fatal(err)
	}
	defer closeKinds()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	onReady()
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			tb.Errorf("Run = %v, want nil", err)
		}
	})
	<-s.done
	stop()
	running.Wait()
}

// runSDK does the jobs with the SDK alone.
func (s *shortJobs) runSDK(tb testing.TB, onReady func()) {
	tb.Helper()
	loop, err := newSDKLoop(s.server.ConnectionString(), s.server.Transport())
	if err != nil {
		tb.Fatal(err)
	}
	onReady()
	if err := loop.run(s.jobs); err != nil {
		tb.Fatal(err)
	}
}

// sdkLoop does jobs with the SDK alone, with the calls of a worker and as many slots:
// one goroutine dequeues 32 messages at a time, and each slot decodes the envelope,
// writes a record with as much metadata, and deletes the message.
type sdkLoop struct {
	messages *azqueue.QueueClient
	records  *container.Client
}

func newSDKLoop(connection string, transport policy.Transporter) (*sdkLoop, error) {
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return nil, err
	}
	options := policy.ClientOptions{Transport: transport}
	queues, err := azqueue.NewServiceClientFromConnectionString(connection, &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	blobs, err := azblob.NewClientFromConnectionString(connection, &azblob.ClientOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	return &sdkLoop{messages: queues.NewQueueClient(names.Queue), records: blobs.ServiceClient().NewContainerClient(names.Records)}, nil
}

func (l *sdkLoop) run(jobs int) error {
	claimed := make(chan *azqueue.DequeuedMessage)
	var slots errgroup.Group
	for range shortJobSlots {
		slots.Go(func() error {
			for m := range claimed {
				if err := l.do(m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for left := jobs; left > 0; {
		reply, err := l.messages.DequeueMessages(context.Background(), &azqueue.DequeueMessagesOptions{
			NumberOfMessages: new(int32(queue.MaxClaim)), VisibilityTimeout: new(int32(30)),
		})
		if err != nil {
			return err
		}
		for _, m := range reply.Messages {
			claimed <- m
		}
		left -= len(reply.Messages)
	}
	close(claimed)
	return slots.Wait()
}

// recordOf is metadata as a worker writes it for a short job that is done.
func recordOf(messageID, kind string) map[string]string {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return map[string]string{
		"v": "1", "status": "done", "kind": kind, "payloadhash": strings.Repeat("0", 64), "messageid": messageID,
		"token": messageID, "write": "1", "generation": "1", "progress": "1", "createdat": now, "claimedat": now, "endedat": now,
		"owner": "vm-0", "overhead": "1",
	}
}

// do does one job.
func (l *sdkLoop) do(m *azqueue.DequeuedMessage) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	raw, err := base64.StdEncoding.DecodeString(*m.MessageText)
	if err != nil {
		return err
	}
	var envelope struct {
		ID, Kind string
		Payload  json.RawMessage
	}
	if err := json.Unmarshal(raw, &envelope); err != nil {
		return err
	}
	metadata := map[string]*string{}
	for key, value := range recordOf(*m.MessageID, envelope.Kind) {
		metadata[key] = &value
	}
	_, err = l.records.NewBlockBlobClient(jobid.Path(envelope.ID)).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)),
		&blockblob.UploadOptions{
			Metadata:         metadata,
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)}},
		})
	if err != nil {
		return err
	}
	_, err = l.messages.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	return err
}

// BenchmarkShortJob measures the cost of a job whose handler does nothing, with the
// emulator in the same process: through the worker, and through the SDK alone. Run it
// with -cpu 1 to read ns/op as CPU time.
func BenchmarkShortJob(b *testing.B) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		name string
		run  func(s *shortJobs, tb testing.TB, onReady func())
	}{
		{"worker", (*shortJobs).runWorker},
		{"sdk", (*shortJobs).runSDK},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := newShortJobs(b, b.N)
			b.ReportAllocs()
			runtime.GC()
			tt.run(s, b, b.ResetTimer)
		})
	}
}

// BenchmarkShortJobProcess measures the same over loopback sockets, the worker and the
// SDK's loop each in a process of its own: its CPU time for a job, as the kernel
// counts it.
func BenchmarkShortJobProcess(b *testing.B) {
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"worker", []string{"testworker", "--metadata-endpoint=none", "--listen=none", "--log-format=json", "--concurrency=16"}},
		{"sdk", []string{"sdkloop", strconv.Itoa(b.N)}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			if tt.name == "sdk" {
				tt.args[1] = strconv.Itoa(b.N)
			}
			s := newShortJobs(b, b.N)
			connection, err := s.server.Listen(storage.Addresses{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.server.Close()
			log, err := os.Create(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			cmd := exec.Command(tt.args[0], tt.args[1:]...)
			cmd.Stderr = log
			cmd.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+connection)
			b.ResetTimer()
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			<-s.done
			_ = cmd.Process.Signal(syscall.SIGTERM) // the loop may have ended
			_ = cmd.Wait()
			b.ReportMetric(float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/float64(b.N), "cpu-µs/job")
		})
	}
}

// runSDKLoop is the program sdkloop.
func runSDKLoop() {
	jobs, err := strconv.Atoi(os.Args[1])
	if err == nil {
		var loop *sdkLoop
		if loop, err = newSDKLoop(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), nil); err == nil {
			err = loop.run(jobs)
		}
	}
	cli.Exit("sdkloop", err)
}
