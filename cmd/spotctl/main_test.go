package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/checkpoint/ledger"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/test/script"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spotctl": main, "terminal": script.Terminal})
}

// world is the environment of one script beside its files: a storage account on loopback.
type world struct {
	server *storage.Server
	stores *deployment.Stores
	beats  *heartbeats
}

// TestScripts runs the command line against a storage account of each script's
// own. The scripts are in testdata.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			w, connectionString, err := newWorld()
			if err != nil {
				return err
			}
			stop := w.beats.keep()
			env.Defer(func() {
				stop()
				if err := w.server.Close(); err != nil {
					t.Errorf("close the storage account: %v", err)
				}
			})
			env.Values["world"] = w
			env.Setenv("AZURE_STORAGE_CONNECTION_STRING", connectionString)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's second after each exit
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": script.Status,
			"giveup": giveUp,
			"text":   text,
			"put":    put,
			"strand": strand, "deadlines": deadlines,
			"claim":     claim,
			"heartbeat": heartbeat,
			"spent":     spent,
			"takes":     takes,
			"lacks":     lacks,
			"putOn":     putOn,
			"metadata":  metadata,
			"steered":   steered,
			"control":   controlDocument,
			"record":    record,
			"messages":  messages,
			"visible":   visible,
			"refuse":    refuse,
			"printed":   printed,
			"runs":      runs,
			"ends":      ends,
			"damage":    damage,
			"blobs":     blobs,
			"stored":    stored,
			"stranger":  stranger,
			"grouped":   groupPut,
		},
	})
}

func newWorld() (w *world, connectionString string, err error) {
	server := storage.New(storage.Options{})
	if connectionString, err = server.Listen(storage.Addresses{}); err != nil {
		return nil, "", err
	}
	w, err = emptyWorld(server)
	return w, connectionString, err
}

// emptyWorld is a deployment without jobs in an account.
func emptyWorld(server *storage.Server) (*world, error) {
	w := &world{server: server}
	names, err := azure.NamesFor("spotworker", "")
	if err != nil {
		return nil, err
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: w.server.ConnectionString(), Transport: w.server.Transport()})
	if err != nil {
		return nil, err
	}
	w.stores = deployment.StoresOf(account, names)
	w.beats = &heartbeats{store: w.stores.Workers, last: map[string]presence.Presence{}}
	for _, q := range w.stores.AllQueues() {
		if err := q.Create(context.Background()); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{names.Records, names.Payloads, names.Workers, names.Control, names.Outputs} {
		if _, err := account.Container(name).Create(context.Background(), nil); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func worldOf(ts *testscript.TestScript) *world {
	w, ok := ts.Value("world").(*world)
	if !ok {
		ts.Fatalf("the script has no storage account")
	}
	return w
}

// stranger NAME puts a blob of that name into the container of records.
func stranger(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	_, err := w.stores.Account.Container(w.stores.Names.Records).NewBlockBlobClient(args[0]).UploadBuffer(context.Background(), []byte("x"),
		nil)
	ts.Check(err)
}

// giveUp ID [STATUS] [KIND] leaves a job of 50 % as a worker that gave it up did.
// STATUS is the record's status: poison, done, running or twice, which is poison
// with two messages.
func giveUp(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	how, kind := "poison", "resize"
	if len(args) > 1 {
		how = args[1]
	}
	if len(args) > 2 {
		kind = args[2]
	}
	content, err := queue.JSONPayload([]byte(`{"file":"` + args[0] + `.jpg"}`))
	ts.Check(err)
	e := queue.Envelope{ID: args[0], Kind: kind, Payload: content, EnqueuedAt: time.Now().UTC()}
	body, err := e.Encode()
	ts.Check(err)
	message := uuid.NewString()
	ts.Check(leave(ctx, w, e, message, how))
	p := queue.Poison{
		ID: e.ID, Kind: e.Kind, Reason: "no such file: \x1b[31m" + args[0] + ".jpg", PoisonedAt: time.Now().Add(-90 * time.Minute).UTC(),
		Worker: "vmss_1-0123abcd-0", Origin: w.stores.Queue.Name(), MessageID: message, Body: body,
	}
	for range map[bool]int{false: 1, true: 2}[how == "twice"] {
		ts.Check(w.stores.Poison.PutPoison(ctx, p, w.stores.Payloads))
	}
}

// leave leaves the job's record.
func leave(ctx context.Context, w *world, e queue.Envelope, message, how string) error {
	d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Payload.Hash(), MessageID: message}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	if err != nil {
		return err
	}
	last := checkpoint.Snapshot{State: []byte("half"), Fraction: 0.5, Text: "row 5 of 10"}
	switch how {
	case "done":
		return claim.Commit(ctx, []byte("result"))
	case "running":
		return claim.Save(ctx, last)
	}
	return claim.Poison(ctx, last, "no such file")
}

// deadlines ID DUE ESTIMATE leaves a job of 50 % that runs, or with moved waits after a move,
// with a deadline after DUE from now and an estimate.
func deadlines(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	due, err := time.ParseDuration(args[1])
	ts.Check(err)
	estimate, err := time.ParseDuration(args[2])
	ts.Check(err)
	d := checkpoint.Delivery{
		ID: args[0], Kind: "resize", PayloadHash: queue.Payload{}.Hash(), MessageID: uuid.NewString(),
		Deadline: time.Now().Add(due), Estimate: estimate,
	}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	ts.Check(err)
	last := checkpoint.Snapshot{State: []byte("half"), Fraction: 0.5}
	if len(args) < 4 {
		ts.Check(claim.Save(ctx, last))
		return
	}
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.MoveReason = "the deadline was \x1b[31mnear"; return f })
	ts.Check(claim.Release(ctx, last))
}

// stored ID[@GROUP] STATUS PATH=CONTENT... leaves a job that is done, or running, and has stored these
// outputs.
func stored(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	id, group, _ := strings.Cut(args[0], "@")
	d := checkpoint.Delivery{ID: id, Kind: "resize", Group: group, PayloadHash: queue.Payload{}.Hash(), MessageID: uuid.NewString()}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	ts.Check(err)
	set := w.stores.Outputs.NewSet(id, 1, claim.Token(), outputs.Limits{Files: 100, Bytes: 1 << 30}, "", nil)
	for _, arg := range args[2:] {
		path, content, _ := strings.Cut(arg, "=")
		_, err := set.Send(ctx, path, int64(len(content)), strings.NewReader(content))
		ts.Check(err)
	}
	ref, err := set.Record(ctx)
	ts.Check(err)
	claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Outputs = checkpoint.Outputs(ref); return f })
	if args[1] == "running" {
		ts.Check(claim.Touch(ctx, checkpoint.Snapshot{}))
		return
	}
	ts.Check(claim.Commit(ctx, nil))
}

// strand ID STATUS PAYLOAD [KIND] leaves a job of 50 % without a message. With the payload
// "inputs" it has inputs that its record does not list. STATUS is open or
// running, PAYLOAD none, blob, or message where it went with its message.
func strand(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	e := queue.Envelope{ID: args[0], Kind: "resize"}
	if len(args) > 3 {
		e.Kind = args[3]
	}
	if args[2] != "none" && args[2] != "inputs" {
		content, err := queue.JSONPayload([]byte(`{"file":"` + args[0] + `.jpg"}`))
		ts.Check(err)
		e.Payload = content
	}
	if args[2] == "blob" {
		var err error
		e, err = w.stores.Payloads.Offload(ctx, e)
		ts.Check(err)
	}
	if args[2] == "inputs" {
		e.Inputs = json.RawMessage(`[{"container":"data","prefix":"7/"}]`)
	}
	d := checkpoint.Delivery{ID: e.ID, Kind: e.Kind, PayloadHash: e.Work(), MessageID: uuid.NewString()}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	ts.Check(err)
	if e.Inputs != nil {
		claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Inputs = strings.Repeat("a", 64); return f })
	}
	last := checkpoint.Snapshot{State: []byte("half"), Fraction: 0.5}
	if args[1] == "running" {
		ts.Check(claim.Save(ctx, last))
		return
	}
	ts.Check(claim.Release(ctx, last))
}

// heartbeat NAME STATE [JOB...] leaves the heartbeat of a worker.
func heartbeat(ts *testscript.TestScript, _ bool, args []string) {
	vm, _, _ := strings.Cut(args[0], "-")
	did, logEnd := activity.Report{}, ""
	if args[1] == "stopped" {
		logEnd = `{"msg":"drained"}` + "\n"
	}
	if args[1] == "process" {
		did = activity.Report{Slots: 4, Times: activity.Times{Handler: 20 * time.Minute, Idle: 20 * time.Minute}, Kinds: []activity.Kind{{
			Name: "resize", Done: 18, Failed: 2, Durations: activity.Histogram{{Index: 40, Count: 17}, {Index: 60, Count: 1}},
			Efforts: activity.Efforts{Committed: 18 * time.Minute, HandedOver: time.Minute, Failed: 30 * time.Second, Redone: 30 * time.Second},
		}}}
	}
	ts.Check(worldOf(ts).beats.write(presence.Presence{
		Activity: did,
		Worker:   args[0], Machine: presence.Machine{VM: vm}, State: args[1], Program: "1.2.3", LogEnd: logEnd,
		Jobs: args[2:], StartedAt: time.Now().Add(-2 * time.Hour), At: time.Now(),
	}))
}

// spent ID KIND USEFUL REDONE OVERHEAD ends a job that has cost that much.
func spent(ts *testscript.TestScript, _ bool, args []string) {
	var times [3]time.Duration
	for i := range times {
		took, err := time.ParseDuration(args[2+i])
		ts.Check(err)
		times[i] = took
	}
	c := worldOf(ts).stores.Records.Fresh(checkpoint.Delivery{ID: args[0], Kind: args[1], MessageID: "m"}, "vmss_1-0123abcd-0")
	c.SetFacts(func(f checkpoint.Facts) checkpoint.Facts {
		f.Spent = ledger.Delivery{Slot: times[0] + times[1] + times[2], Handler: times[0] + times[1]}
		return f
	})
	ts.Check(c.Poison(context.Background(), checkpoint.Snapshot{State: []byte("s"), At: times[0]}, "no"))
}

// claim takes every message on the queue of jobs, which hides them. claim poison does so on the poison
// queue.
func claim(ts *testscript.TestScript, _ bool, args []string) {
	on := worldOf(ts).stores.Queue
	if slices.Contains(args, "poison") {
		on = worldOf(ts).stores.Poison
	}
	_, err := on.Claim(context.Background(), queue.MaxClaim, time.Hour)
	ts.Check(err)
}

// takes WORKER QUEUE... writes the heartbeat of a worker that takes from these queues.
func takes(ts *testscript.TestScript, _ bool, args []string) {
	vm, _, _ := strings.Cut(args[0], "-")
	ts.Check(worldOf(ts).beats.write(presence.Presence{
		Worker: args[0], Machine: presence.Machine{VM: vm}, State: "process", Program: "1.2.3",
		StartedAt: time.Now(), At: time.Now(), Steered: true, TakesFrom: args[1:],
	}))
}

// lacks WORKER OWN KIND JOBS writes the heartbeat of a worker with a kind of its own that hides
// so many jobs of a kind that no worker has.
func lacks(ts *testscript.TestScript, _ bool, args []string) {
	jobs, err := strconv.Atoi(args[3])
	ts.Check(err)
	ts.Check(worldOf(ts).beats.write(presence.Presence{
		Worker: args[0], Machine: presence.Machine{VM: "vm"}, State: "process", Program: "1.2.3",
		StartedAt: time.Now(), At: time.Now(), Steered: true,
		Kinds: []string{args[1]}, Findings: presence.Findings{Lacks: []presence.KindCount{{Kind: args[2], Jobs: jobs}}},
	}))
}

// metadata QUEUE KEY VALUE replaces the metadata of a queue.
func metadata(ts *testscript.TestScript, _ bool, args []string) {
	_, err := worldOf(ts).stores.Account.Queue(args[0]).SetMetadata(context.Background(),
		&azqueue.SetMetadataOptions{Metadata: map[string]*string{args[1]: &args[2]}})
	ts.Check(err)
}

// putOn QUEUE JOB puts a message on a queue.
func putOn(ts *testscript.TestScript, _ bool, args []string) {
	q := queue.New(worldOf(ts).stores.Account.Queue(args[0]), args[0])
	ts.Check(q.Put(context.Background(), queue.Envelope{ID: args[1], Kind: "resize"}, 0))
}

// put ID puts a job on the queue, as a producer does.
func put(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(worldOf(ts).stores.Queue.Put(context.Background(), queue.Envelope{ID: args[0], Kind: "resize"}, 0))
}

// text TEXT puts any text on the poison queue.
func text(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(worldOf(ts).stores.Poison.PutUnchanged(context.Background(), args[0]))
}

// record ID prints a job's record.
func record(ts *testscript.TestScript, _ bool, args []string) {
	r, err := worldOf(ts).stores.Records.Read(context.Background(), args[0])
	if errors.Is(err, checkpoint.ErrNotFound) {
		fmt.Fprintln(ts.Stdout(), "none")
		return
	}
	ts.Check(err)
	owner, _, _ := strings.Cut(r.Owner, "@")
	fmt.Fprintf(ts.Stdout(), "%s state=%t by=%s\n", r.Status, r.HasState(), owner)
}

// steered WORKER VM STATE REVISION writes a worker's heartbeat. REVISION is the control
// document's revision, or old for a worker that does not read it.
func steered(ts *testscript.TestScript, _ bool, args []string) {
	revision, err := strconv.Atoi(args[3])
	ts.Check(worldOf(ts).beats.write(presence.Presence{
		Worker: args[0], Machine: presence.Machine{VM: args[1]}, State: args[2], At: time.Now(), StartedAt: time.Now(),
		Steered: err == nil, Control: revision,
	}))
}

// controlDocument prints the control document.
func controlDocument(ts *testscript.TestScript, _ bool, _ []string) {
	found, _, err := worldOf(ts).stores.Control.Read(context.Background(), "")
	ts.Check(err)
	text, err := json.Marshal(found.Document)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", text)
}

// damage TEXT replaces the content of the control document.
func damage(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	body := streaming.NopCloser(strings.NewReader(args[0]))
	_, err := w.stores.Account.Container(w.stores.Names.Control).NewBlockBlobClient("control").Upload(context.Background(), body, nil)
	ts.Check(err)
}

// blobs CONTAINER prints the names and sizes of the blobs in a container.
func blobs(ts *testscript.TestScript, _ bool, args []string) {
	pager := worldOf(ts).stores.Account.Container(args[0]).NewListBlobsFlatPager(nil)
	for pager.More() {
		page, err := pager.NextPage(context.Background())
		ts.Check(err)
		for _, item := range page.Segment.BlobItems {
			fmt.Fprintf(ts.Stdout(), "%s %d\n", *item.Name, *item.Properties.ContentLength)
		}
	}
}

// messages QUEUE prints the jobs on a queue.
func messages(ts *testscript.TestScript, _ bool, args []string) {
	all := worldOf(ts).server.Messages(args[0])
	fmt.Fprintf(ts.Stdout(), "%d messages\n", len(all))
	for _, m := range all {
		raw, err := base64.StdEncoding.DecodeString(m.Text)
		if err != nil {
			raw = []byte(m.Text)
		}
		e, err := queue.Decode(m.Text)
		if err != nil {
			fmt.Fprintf(ts.Stdout(), "text %s\n", raw)
			continue
		}
		fmt.Fprintf(ts.Stdout(), "%s %s resume=%t\n", e.ID, e.Kind, e.Resume)
	}
}

// visible N demands that the poison queue has N messages, all of them visible.
func visible(ts *testscript.TestScript, _ bool, args []string) {
	all := worldOf(ts).server.Messages("spotworker-jobs-poison")
	n := 0
	for _, m := range all {
		if m.Visible {
			n++
		}
	}
	if strconv.Itoa(n) != args[0] || n != len(all) {
		ts.Fatalf("the poison queue has %d messages, of which %d are visible, want %s", len(all), n, args[0])
	}
}

// refuse OPERATION [CODE] refuses an operation, or all, from now on; none refuses no more.
func refuse(ts *testscript.TestScript, _ bool, args []string) {
	code := "AuthorizationPermissionMismatch"
	if len(args) > 1 {
		code = args[1]
	}
	worldOf(ts).server.OnCall(func(c storage.Call) storage.Fault {
		if c.Operation == args[0] || args[0] == "all" {
			return storage.Fault{Refuse: &storage.Error{Status: 403, Code: code}}
		}
		return storage.Fault{}
	})
}

// printed ID LINES|bytes [again] leaves a job that is done and has printed so many lines,
// or a line with bytes that are no text. With again a second worker had it too, and logged
// a line.
func printed(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	keeper := joblog.NewKeeper(w.stores.Logs, joblog.DefaultSize)
	d := checkpoint.Delivery{ID: args[0], Kind: "resize", PayloadHash: queue.Payload{}.Hash(), MessageID: "m"}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	ts.Check(err)
	log := keeper.Open(d.ID, claim.Record().CreatedAt, 1, "vmss_1-0123abcd-0", "")
	if lines, err := strconv.Atoi(args[1]); err == nil {
		for n := range lines {
			log.Add(joblog.Stdout, fmt.Appendf(nil, "line %d", n+1))
		}
	} else {
		log.Add(joblog.Stderr, []byte("a\x1b[31mb\xff"))
	}
	withLog := func(f checkpoint.Facts) checkpoint.Facts { f.Log = log.Tail(); return f }
	claim.SetFacts(withLog)
	if len(args) > 2 {
		ts.Check(claim.Save(ctx, checkpoint.Snapshot{State: []byte("half")}))
		ts.Check(log.WriteLast(ctx, time.Minute))
		found, err := w.stores.Records.Read(ctx, d.ID)
		ts.Check(err)
		claim, err = w.stores.Records.Acquire(ctx, d, found, "vmss_2-0123abcd-0")
		ts.Check(err)
		log = keeper.Open(d.ID, claim.Record().CreatedAt, 2, "vmss_2-0123abcd-0", found.Log)
		log.Add("warn", []byte("resumed"))
		claim.SetFacts(withLog)
	}
	ts.Check(claim.Commit(ctx, []byte("result")))
	ts.Check(log.WriteLast(ctx, time.Minute))
}

// ends ID STATUS TEXT leaves a job that is done with a result, or poison for a reason. TEXT is
// the text of a Go string, with escapes.
func ends(ts *testscript.TestScript, _ bool, args []string) {
	w, ctx := worldOf(ts), context.Background()
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(args[2], `"`, `\"`) + `"`)
	ts.Check(err)
	d := checkpoint.Delivery{ID: args[0], Kind: "resize", PayloadHash: queue.Payload{}.Hash(), MessageID: "m"}
	claim, err := w.stores.Records.Create(ctx, d, "vmss_1-0123abcd-0")
	ts.Check(err)
	if args[1] == "done" {
		ts.Check(claim.Commit(ctx, []byte(text)))
		return
	}
	ts.Check(claim.Poison(ctx, checkpoint.Snapshot{}, text))
}

// TestCleanedIsSaid: what clean prints of its counts.
func TestCleanedIsSaid(t *testing.T) {
	r := client.CleanReport{Read: 7, Done: 2, Cancelled: 1, Bytes: 10, Logs: 2, LogBytes: 3 << 19, Outputs: 3, OutputBytes: 1 << 20,
		Changed: 1, Poison: 4, PoisonUnseen: true}
	var out, notes strings.Builder
	p := &printer{out: &out, err: &notes}
	if err := p.cleaned(r, false, nil); err != nil {
		t.Fatal(err)
	}
	want := "would be removed: 3 jobs of 7 records: 2 done, 1 cancelled, with 10 bytes of results\n" +
		"would be removed: 2 logs, 1.5 MiB\n" +
		"would be removed: 3 outputs and lists of them, 1.0 MiB\n" +
		"left alone: 1 jobs, because somebody wrote or removed them during the run\n" +
		"left alone: 4 jobs, because the poison queue has a message of them: spotctl poison replay or purge\n" +
		"the poison queue has more messages than were looked at: jobs of which it has one will be left alone\n"
	if out.String() != want || notes.String() != "nothing was removed: give --yes to remove them, which cannot be undone\n" {
		t.Errorf("printed:\n%s%s\nwant:\n%s", out.String(), notes.String(), want)
	}
	out.Reset()
	p.json = true
	failed := errors.New("1 jobs could not be removed")
	if err := p.cleaned(r, true, failed); !errors.Is(err, failed) {
		t.Errorf("error = %v, want that of the run", err)
	}
	want = `{"removed":true,"records":7,"done":2,"cancelled":1,"result_bytes":10,"logs":2,"log_bytes":1572864,"outputs":3,` +
		`"output_bytes":1048576,"changed":1,"poison":4,"failed":0,"skipped":0,"error":"1 jobs could not be removed"}` + "\n"
	if out.String() != want {
		t.Errorf("JSON = %s, want %s", out.String(), want)
	}
}

// TestLogPrinterPrintsEachLineOnce: a repeated reading prints only its new lines, and
// counts as left out only lines that were not printed.
func TestLogPrinterPrintsEachLineOnce(t *testing.T) {
	var out strings.Builder
	p := &logPrinter{printer: &printer{out: &out}}
	line := func(delivery, number int) client.LogLine {
		return client.LogLine{Delivery: delivery, Worker: "w", Number: number, Source: "stdout", Text: fmt.Sprint(delivery, ".", number)}
	}
	for _, lines := range [][]client.LogLine{
		{line(1, 1), line(1, 2)},
		{line(1, 1), line(1, 2)},
		{{Delivery: 1, Worker: "w", Number: 1, LeftOut: 1300}, line(1, 1301)},
		{{LeftOut: 1301}, {Delivery: 2, Worker: "w", Number: 1, LeftOut: 1}, line(2, 2)},
	} {
		if err := p.print(lines); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"delivery 1 on w", "1.1", "1.2", "… 1,298 lines left out", "1.1301", "delivery 2 on w", "… 1 line left out", "2.2"}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], "0001-01-01 00:00:00.000 stdout  ")
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("printed %q, want %q", got, want)
	}
}
