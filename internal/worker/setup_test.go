package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/emulator/imds"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/intake"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outage"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// testbed holds emulated storage and metadata services in virtual time, and the clients
// with which a test fills and inspects them.
type testbed struct {
	t        *testing.T
	server   *storage.Server
	metadata *imds.Server
	names    azure.Names
	recorder *recorder            // nil unless the test called addRecorder
	retry    *policy.RetryOptions // nil for the worker's defaults
	jitter   retry.Jitter         // of the worker's waits between tries
	chunk    int                  // block size of large states, in bytes; 0 for the worker's default
	sharded  bool                 // the queue of jobs has shards, and workers know of them
	accounts *accounts            // nil for one

	cacheInputs string // the folder of the cache of inputs that workers fetch over their links; "" for none

	stores
}

// stores are clients for the queues and containers over one transport.
type stores struct {
	queue, onDemand, poison *queue.Queue
	shards                  *queue.Shards
	payloads                *queue.Payloads
	logs                    *joblog.Store
	records                 *checkpoint.Store
	workers                 *presence.Store
	control                 *control.Store
	outputs                 *outputs.Store
}

// inBubble runs a test in a synctest bubble, that is in virtual time, with a testbed
// whose queues and containers exist.
func inBubble(t *testing.T, test func(t *testing.T, b *testbed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		names, err := azure.NamesFor("test", "")
		if err != nil {
			t.Fatal(err)
		}
		b := &testbed{t: t, server: storage.New(storage.Options{}), metadata: imds.New(imds.Options{}), names: names}
		client := b.account(b.server.Transport())
		for _, name := range []string{names.Records, names.Payloads, names.Workers, names.Control, names.Outputs} {
			if _, err := client.Container(name).Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		b.stores = b.connect(b.server.Transport())
		for _, q := range []*queue.Queue{b.queue, b.onDemand, b.poison} {
			if err := q.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b.server.ResetCounts()
		test(t, b)
	})
}

func (b *testbed) account(transport policy.Transporter) *azure.Account {
	b.t.Helper()
	return b.watchedAccount(transport, nil, nil)
}

// watchedAccount is account, reports how calls end, and counts in pressure those that
// come too fast.
func (b *testbed) watchedAccount(transport policy.Transporter, pressure *intake.Pressure, onEnd func(outage.Call)) *azure.Account {
	b.t.Helper()
	return b.watchedAccountAt(0, transport, pressure, onEnd)
}

// watchedAccountAt is watchedAccount for the account of that number.
func (b *testbed) watchedAccountAt(i int, transport policy.Transporter, pressure *intake.Pressure, onEnd func(outage.Call)) *azure.Account {
	b.t.Helper()
	name := accountName(i)
	account, err := azure.Connect(azure.Config{
		ConnectionString: b.servers()[i].ConnectionString(), Transport: transport, Retry: b.retry,
		OnEnd: func(c outage.Call) {
			if c.Account = name; onEnd != nil {
				onEnd(c)
			}
		},
		OnCall: func(c azure.Call) {
			if c.Account = name; name != "" && c.Queue != "" {
				c.Queue = name + "/" + c.Queue
			}
			if c.Throttled {
				pressure.Refused(c.Account, c.Queue)
			}
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return account
}

func (b *testbed) connect(transport policy.Transporter) stores { return b.connectAt(0, transport) }

// connectAt returns the stores of the account of that number.
func (b *testbed) connectAt(i int, transport policy.Transporter) stores {
	return b.storesIn(accountName(i), b.watchedAccountAt(i, transport, nil, nil))
}

func (b *testbed) storesOf(account *azure.Account) stores { return b.storesIn("", account) }

// storesIn is storesOf for an account of that name, empty for the first.
func (b *testbed) storesIn(in string, account *azure.Account) stores {
	records := checkpoint.NewStore(account.Container(b.names.Records))
	if b.chunk > 0 {
		records = records.WithChunks(b.chunk)
	}
	shards := queue.NewShardsIn(in, b.names.Queue, account.Queue)
	return stores{
		shards:   shards,
		queue:    shards.Main(),
		onDemand: queue.NewIn(in, account.Queue(b.names.OnDemand), b.names.OnDemand),
		poison:   queue.NewIn(in, account.Queue(b.names.Poison), b.names.Poison),
		payloads: queue.NewPayloads(account.Container(b.names.Payloads)),
		logs:     joblog.NewStore(account.Container(b.names.Payloads)),
		records:  records,
		workers:  presence.NewStore(account.Container(b.names.Workers)),
		control:  control.NewStore(account.Container(b.names.Control)),
		outputs:  outputs.NewStore(account.Container(b.names.Outputs)),
	}
}

// process is a worker with the link and the VM of its own, like a process on a machine.
type process struct {
	*Worker
	b     *testbed
	link  *link
	guest *imds.Guest
	log   *logLines
	term  context.CancelFunc
	ended chan struct{}
}

// start runs a worker on a VM of that name. change adapts its configuration. The
// worker is stopped when the test ends.
func (b *testbed) start(name string, kinds job.Kinds, change ...func(*Config)) *process {
	b.t.Helper()
	return b.startWithLink(name, kinds, func(*link) {}, change...)
}

// startWithLink is start, and calls setUp to inject faults into the link to storage before
// the worker runs.
func (b *testbed) startWithLink(name string, kinds job.Kinds, setUp func(*link), change ...func(*Config)) *process {
	b.t.Helper()
	p := &process{b: b, link: &link{next: b.transport(name)}, log: &logLines{}, ended: make(chan struct{})}
	setUp(p.link)
	p.guest = b.metadata.AddVM(spotVM(name))
	client, err := preempt.NewClient("http://127.0.0.1:1", preempt.WithTransport(metadataLink{p.link, p.guest.RoundTripper()}))
	if err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	outages := outage.New(log, func() int { return p.runner.Counts().Active })
	pressure := &intake.Pressure{}
	account := b.watchedAccount(p.link, pressure, outages.Ended)
	s := b.storesOf(account)
	c := Config{
		Queue: s.queue, OnDemand: s.onDemand, Poison: s.poison, Payloads: s.payloads, Records: s.records, Workers: s.workers, Control: s.control, Logs: s.logs, Outputs: s.outputs,
		Kinds: kinds, Concurrency: 4, Metadata: client, Host: name, BootID: "boot", Program: "test", Jitter: b.jitter, Pressure: pressure,
		Log: log,
	}
	if b.sharded {
		c.Shards = s.shards
	}
	if b.cacheInputs != "" {
		c.Inputs = b.fetcher(b.cacheInputs, 1<<30, account)
	}
	if b.accounts != nil {
		b.accounts.join(p.link, &c)
	}
	for _, f := range change {
		if f != nil {
			f(&c)
		}
	}
	p.Worker, err = New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.term = cancel
	go func() {
		defer close(p.ended)
		if err := p.Run(ctx); err != nil {
			b.t.Errorf("Run = %v, want nil", err)
		}
	}()
	b.t.Cleanup(p.stop)
	return p
}

// stop terminates the worker as SIGTERM does and waits until it has exited.
func (p *process) stop() {
	p.term()
	<-p.ended
}

// killNoWait kills the process without waiting for its goroutines to end.
func (p *process) killNoWait() {
	p.link.cut()
	p.term()
}

// kill ends the process as SIGKILL does, as far as others can see: none of its later
// requests arrives anywhere. It waits until the goroutines have ended.
func (p *process) kill() {
	p.killNoWait()
	<-p.ended
}

// logLines collects what a worker logged.
type logLines struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine map[string]any

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		var fields logLine
		if err := json.Unmarshal(line, &fields); err != nil {
			return 0, err
		}
		l.lines = append(l.lines, fields)
	}
	return len(p), nil
}

// find returns all lines with that message.
func (l *logLines) find(msg string) []logLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []logLine
	for _, line := range l.lines {
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

// put enqueues a job with a JSON payload.
func (b *testbed) put(id, kind, payload string) {
	b.t.Helper()
	b.putOn(b.shards.For(id), id, kind, payload)
}

// putOn enqueues a job with a JSON payload on a queue.
func (b *testbed) putOn(q *queue.Queue, id, kind, payload string) {
	b.t.Helper()
	e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now()}
	if payload != "" {
		p, err := queue.JSONPayload([]byte(payload))
		if err != nil {
			b.t.Fatal(err)
		}
		e.Payload = p
	}
	if err := q.Put(b.t.Context(), e, 0); err != nil {
		b.t.Fatal(err)
	}
}

// putText enqueues a message with any text, as a foreign tool may, and returns the
// message's id. The message expires after the given time, or after the service's
// default of 7 days.
func (b *testbed) putText(text string, expires ...time.Duration) string {
	b.t.Helper()
	var options azqueue.EnqueueMessageOptions
	for _, after := range expires {
		options.TimeToLive = new(int32(after / time.Second))
	}
	reply, err := b.account(b.transport("test")).Queue(b.names.Queue).EnqueueMessage(b.t.Context(), text, &options)
	if err != nil {
		b.t.Fatal(err)
	}
	return *reply.Messages[0].MessageID
}

// record returns a job's record, or one without a status if there is none.
func (b *testbed) record(id string) checkpoint.Record {
	b.t.Helper()
	r, err := b.storesFor(id).records.Read(b.t.Context(), id)
	if err != nil {
		return checkpoint.Record{}
	}
	return r
}

// waitFor lets virtual time pass until done returns true, and fails the test after
// limit. The time between two checks grows with the time waited.
func (b *testbed) waitFor(what string, limit time.Duration, done func() bool) {
	b.t.Helper()
	for start := time.Now(); !done(); {
		passed := time.Since(start)
		if passed > limit {
			b.t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(max(10*time.Millisecond, passed/200))
		synctest.Wait()
	}
}

// waitDone waits until the job is done.
func (b *testbed) waitDone(id string, limit time.Duration) {
	b.t.Helper()
	b.waitFor("job "+id+" done", limit, func() bool { return b.record(id).Status == checkpoint.Done })
}

// poisonMessages returns the poison messages.
func (b *testbed) poisonMessages() []queue.Poison {
	b.t.Helper()
	var all []queue.Poison
	for _, server := range b.servers() {
		for _, m := range server.Messages(b.names.Poison) {
			p, err := queue.DecodePoison(m.Text)
			if err != nil {
				b.t.Errorf("poison message: %v", err)
			}
			all = append(all, p)
		}
	}
	return all
}

// messagesLeft returns how many messages are on the queues of jobs, hidden ones included.
func (b *testbed) messagesLeft() (n int) {
	for _, name := range b.jobQueues() {
		for _, server := range b.servers() {
			n += len(server.Messages(name))
		}
	}
	return n
}

// jobQueues returns the names of the queues of jobs.
func (b *testbed) jobQueues() []string { return append(queue.Names(b.shards.All()), b.names.OnDemand) }

// useShards makes so many queues of jobs.
func (b *testbed) useShards(counts queue.ShardCounts) {
	b.t.Helper()
	b.sharded = true
	for i := range counts.Taken {
		name := queue.ShardName(b.names.Queue, i)
		if err := queue.New(b.account(b.server.Transport()).Queue(name), name).Create(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.shards.Write(b.t.Context(), counts); err != nil {
		b.t.Fatal(err)
	}
}

// spotVM is a Spot VM that is in no scale set.
func spotVM(name string) imds.VM {
	return imds.VM{Name: name, VMID: "11112222-0000-0000-0000-000000000000", Priority: "Spot"}
}

// stubborn is a handler that reports once and then ignores its context until the
// test calls finish.
type stubborn struct{ end chan struct{} }

func newStubborn() *stubborn { return &stubborn{end: make(chan struct{})} }

func (s *stubborn) Run(_ context.Context, j *job.Job) ([]byte, error) {
	j.Report(job.Progress{State: []byte("here")})
	<-s.end
	return nil, nil
}

func (s *stubborn) finish() { close(s.end) }
