package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/script"
)

// programVariable makes the test binary a program.
const programVariable = "TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVariable) {
	case "worker":
		spotworker.Main(nil)
	case "producer":
		main()
	}
	testscript.Main(m, map[string]func(){"producer": main, "terminal": script.Terminal})
}

// world is the environment of one script beside its files: a storage account on loopback.
type world struct {
	server           *storage.Server
	connectionString string
}

// TestScripts runs the command line against a storage account of each script's
// own. The scripts are in testdata.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			w := &world{server: storage.New(storage.Options{})}
			var err error
			if w.connectionString, err = w.server.Listen(storage.Addresses{}); err != nil {
				return err
			}
			env.Defer(func() {
				if err := w.server.Close(); err != nil {
					t.Errorf("close the storage account: %v", err)
				}
			})
			env.Values["world"] = w
			env.Setenv("AZURE_STORAGE_CONNECTION_STRING", w.connectionString)
			env.Setenv("KEY", storage.DefaultKey)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's second after each exit
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":   script.Status,
			"messages": messages,
			"message":  message,
			"blob":     blob,
			"records":  records,
			"finish":   finish,
			"await":    await,
			"refuse":   refuse,
			"latency":  latency,
			"created":  created,
			"calls":    calls,
			"record":   record,
			"commit":   commit,
			"away":     away,
			"readonly": readonly,
		},
	})
}

func worldOf(ts *testscript.TestScript) *world {
	w, ok := ts.Value("world").(*world)
	if !ok {
		ts.Fatalf("the script has no storage account")
	}
	return w
}

// messages QUEUE N demands that a queue holds N messages that never expire.
func messages(ts *testscript.TestScript, _ bool, args []string) {
	all := worldOf(ts).server.Messages(args[0])
	if strconv.Itoa(len(all)) != args[1] {
		ts.Fatalf("queue %s has %d messages, want %s", args[0], len(all), args[1])
	}
	for _, m := range all {
		if !m.Expires.IsZero() {
			ts.Fatalf("message %s expires at %v, want never", m.ID, m.Expires)
		}
	}
}

// message ID prints the job of that id as it lies on the queue.
func message(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	for _, m := range w.server.Messages("spotworker-jobs") {
		e, err := queue.Decode(m.Text)
		ts.Check(err)
		if e.ID != args[0] {
			continue
		}
		data, inline := e.Payload.Inline()
		fmt.Fprintf(ts.Stdout(), "kind=%s payload=%s inline=%t hidden=%v", e.Kind, data, inline, m.NextVisible.Sub(m.Inserted).Round(time.Second))
		if !e.Deadline.IsZero() {
			fmt.Fprintf(ts.Stdout(), " deadline=%s", e.Deadline.Format(time.RFC3339))
		}
		if e.Group != "" {
			fmt.Fprintf(ts.Stdout(), " group=%s resume=%t", e.Group, e.Resume)
		}
		fmt.Fprintln(ts.Stdout())
		return
	}
	ts.Fatalf("no message of job %s", args[0])
}

// blob CONTAINER NAME TEXT writes a blob.
func blob(ts *testscript.TestScript, _ bool, args []string) {
	put(ts, args[0], args[1], args[2], nil)
}

// records FILE writes a record for each job whose id is in a file.
func records(ts *testscript.TestScript, _ bool, args []string) {
	for id := range strings.FieldsSeq(ts.ReadFile(args[0])) {
		put(ts, "spotworker-jobs", jobid.Path(id), "", map[string]*string{"v": new("1"), "status": new("running")})
	}
}

// finish FILE writes a record with a result for each job whose id is in a file.
func finish(ts *testscript.TestScript, _ bool, args []string) {
	for id := range strings.FieldsSeq(ts.ReadFile(args[0])) {
		put(ts, "spotworker-jobs", jobid.Path(id), "sum", map[string]*string{"v": new("1"), "status": new("done")})
	}
}

// record ID STATUS [BODY] [KEY=VALUE...] writes the record of a job. A body @FILE
// is read from a file.
func record(ts *testscript.TestScript, _ bool, args []string) {
	metadata := map[string]*string{"v": new("1"), "status": &args[1]}
	body := ""
	for i, arg := range args[2:] {
		if key, value, ok := strings.Cut(arg, "="); ok && i > 0 {
			metadata[key] = &value
		} else {
			body = arg
		}
	}
	if file, ok := strings.CutPrefix(body, "@"); ok {
		body = ts.ReadFile(file)
	}
	put(ts, "spotworker-jobs", jobid.Path(args[0]), body, metadata)
}

// away OPERATION... makes the account answer nothing but 500 to these operations; with
// "!" it answers again.
func away(ts *testscript.TestScript, neg bool, args []string) {
	worldOf(ts).server.OnCall(func(c storage.Call) storage.Fault {
		if neg || len(args) > 0 && !slices.Contains(args, c.Operation) {
			return storage.Fault{}
		}
		return storage.Fault{Refuse: &storage.Error{Status: http.StatusInternalServerError, Code: "InternalError"}}
	})
}

// commit ID RESULT claims the message of a job, and commits the job as a worker does.
func commit(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: w.server.ConnectionString(), Transport: w.server.Transport()})
	ts.Check(err)
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	ts.Check(err)
	stores := deployment.StoresOf(account, names)
	if _, err := account.Container(names.Records).Create(ctx, nil); !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		ts.Check(err)
	}
	for {
		leases, err := stores.Queue.Claim(ctx, 1, time.Minute)
		ts.Check(err)
		if len(leases) == 0 {
			ts.Fatalf("no message of job %s", args[0])
		}
		e, err := queue.Decode(leases[0].Text())
		ts.Check(err)
		if e.ID != args[0] {
			continue
		}
		d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: leases[0].ID}
		ts.Check(stores.Records.Fresh(d, "worker").Commit(ctx, []byte(args[1])))
		ts.Check(leases[0].Complete(ctx))
		return
	}
}

// readonly demands that no call since the last count changed anything.
func readonly(ts *testscript.TestScript, _ bool, _ []string) {
	w := worldOf(ts)
	for operation, n := range w.server.Counts() {
		if n > 0 && !strings.HasPrefix(operation, "Get") && !strings.HasPrefix(operation, "List") {
			ts.Fatalf("%d calls of %s, want none", n, operation)
		}
	}
	w.server.ResetCounts()
}

func put(ts *testscript.TestScript, container, name, text string, metadata map[string]*string) {
	w := worldOf(ts)
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: w.server.ConnectionString(), Transport: w.server.Transport()})
	ts.Check(err)
	client := account.Container(container)
	defer w.server.ResetCounts()
	if !slices.Contains(w.server.Containers(), container) {
		_, err := client.Create(context.Background(), nil)
		ts.Check(err)
	}
	body := streaming.NopCloser(bytes.NewReader([]byte(text)))
	_, err = client.NewBlockBlobClient(name).Upload(context.Background(), body, &blockblob.UploadOptions{Metadata: metadata})
	ts.Check(err)
}

// await OPERATION N waits until there were at least N calls of an operation.
func await(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	for deadline := time.Now().Add(2 * time.Minute); worldOf(ts).server.Counts()[args[0]] < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("there were no %d calls of %s", n, args[0])
		}
	}
}

// refuse OPERATION STATUS CODE refuses an operation from now on.
func refuse(ts *testscript.TestScript, _ bool, args []string) {
	code, err := strconv.Atoi(args[1])
	ts.Check(err)
	if http.StatusText(code) == "" {
		ts.Fatalf("%d is no HTTP status", code)
	}
	worldOf(ts).server.OnCall(func(c storage.Call) storage.Fault {
		if strings.HasPrefix(c.Operation, args[0]) {
			return storage.Fault{Refuse: &storage.Error{Status: code, Code: args[2]}}
		}
		return storage.Fault{}
	})
}

// latency DURATION delays every message that is put.
func latency(ts *testscript.TestScript, _ bool, args []string) {
	by, err := time.ParseDuration(args[0])
	ts.Check(err)
	worldOf(ts).server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == storage.OpPutMessage {
			return storage.Fault{Before: by}
		}
		return storage.Fault{}
	})
}

// created prints the queues and containers that there are.
func created(ts *testscript.TestScript, _ bool, _ []string) {
	w := worldOf(ts)
	fmt.Fprintf(ts.Stdout(), "queues %v containers %v\n", w.server.Queues(), w.server.Containers())
}

// calls OPERATION N demands the number of calls since the last time.
func calls(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	if n := w.server.Counts()[args[0]]; strconv.FormatInt(n, 10) != args[1] {
		ts.Fatalf("%d calls of %s, want %s", n, args[0], args[1])
	}
	w.server.ResetCounts()
}

func TestParseDeadline(t *testing.T) {
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"90m":                       now.Add(90 * time.Minute),
		"2026-01-31T10:30:00+01:00": now.Add(30 * time.Minute),
	} {
		if got, err := parseDeadline(text, now); err != nil || !got.Equal(want) {
			t.Errorf("deadline %q = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"tomorrow", "-5m", "0s", "2026-01-31"} {
		if _, err := parseDeadline(text, now); err == nil {
			t.Errorf("deadline %q = nil, want an error", text)
		}
	}
}

// TestEveryFlagOfAJobIgnoresTheEnvironment: a job's command finds variables such
// as SPOTWORKER_KIND and SPOTWORKER_PAYLOAD that are not meant for a producer.
func TestEveryFlagOfAJobIgnoresTheEnvironment(t *testing.T) {
	for _, name := range []string{"KIND", "ID", "PAYLOAD", "PAYLOAD_TEXT", "PAYLOAD_FILE", "DEADLINE", "ESTIMATE", "DELAY", "STRICT",
		"CONTAINER", "NAME_PREFIX", "CHECK", "VERSION", "TAKE_OVER", "DRY_RUN", "WAIT", "WAIT_TIMEOUT", "JSON", "QUIET"} {
		t.Setenv("SPOTWORKER_"+name, "from-the-environment")
	}
	for _, args := range [][]string{{"put"}, {"digests"}} {
		err := run(args, nil, os.Stdout, os.Stderr)
		if err == nil || !strings.Contains(err.Error(), "missing") {
			t.Errorf("producer %s = %v, want its required flag missed", args, err)
		}
	}
}
