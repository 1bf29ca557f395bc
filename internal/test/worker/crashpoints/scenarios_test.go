package crashpoints

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// scenario is a worker's run. Faults are injected at each of its storage calls.
type scenario struct {
	name     string
	minCalls int    // of a run without faults
	wantLog  string // a line in the log of that run, which shows that the scenario took place

	prepare       func(*testing.T, *rig.Bed, *scenarioRun) // prepares storage
	first, second func(*worker.Config)                     // configure the worker with the faults, and its successor
	act           func(*testing.T, *rig.Bed, *scenarioRun) // lets the worker run until it is to stop
	want          map[string]checkpoint.Status             // of each job

	// twice is whether a job is enqueued twice, so that two deliveries may run it from
	// the start at the same time, until one of them writes the record.
	twice bool
}

var scenarios = []scenario{
	{
		name: "short job", minCalls: 10, wantLog: "job committed",
		prepare: enqueueJobs("a", "echo"), act: runsFor(5 * time.Second), want: wantDone("a"),
	},
	{
		name: "long job", minCalls: 20, wantLog: "job committed",
		prepare: enqueueJobs("long", "steps"), act: runsFor(20 * time.Second), want: wantDone("long"),
	},
	{
		name: "large state", minCalls: 18, wantLog: "job released",
		prepare: enqueueJobs("long", "large"), act: runsFor(9 * time.Second), want: wantDone("long"),
	},
	{
		name: "frozen program", minCalls: 18, wantLog: "job released",
		prepare: enqueueJobs("long", "frozen"), act: runsFor(9 * time.Second), want: wantDone("long"),
	},
	{
		name: "frozen elsewhere", minCalls: 12, wantLog: "message deferred",
		prepare: leaveFrozen, act: runsFor(40 * time.Second), want: wantDone("long"), first: onOtherMachine,
	},
	{
		name: "long log", minCalls: 20, wantLog: "job released",
		prepare: enqueueJobs("long", "prints"), act: runsFor(9 * time.Second), want: wantDone("long"),
	},
	{
		name: "inputs and outputs", minCalls: 34, wantLog: "job released",
		prepare: enqueueWithInputs, act: runsFor(9 * time.Second), want: wantDone("long"),
	},
	{
		name: "changed inputs", minCalls: 14, wantLog: "message moved to the poison queue",
		prepare: changeInputs("copies"), act: runsFor(10 * time.Second), want: map[string]checkpoint.Status{"long": checkpoint.Poison},
	},
	{
		name: "replay from scratch", minCalls: 30, wantLog: "job released",
		prepare: replayFromScratch, act: runsFor(9 * time.Second), want: wantDone("long"),
	},
	{
		name: "claim check", minCalls: 12, wantLog: "job committed",
		prepare: enqueueLarge("a", "echo"), act: runsFor(5 * time.Second), want: wantDone("a"),
	},
	{
		name: "redelivery", minCalls: 18, wantLog: "job committed",
		prepare: leaveOrphan, act: runsFor(50 * time.Second), want: wantDone("long"),
	},
	{
		name: "failure", minCalls: 14, wantLog: "job failed; it will be tried again",
		prepare: enqueueJobs("a", "fails"), act: runsFor(15 * time.Second), want: wantDone("a"),
	},
	{
		name: "poison", minCalls: 14, wantLog: "message moved to the poison queue",
		prepare: enqueueJobs("a", "hopeless"), act: runsFor(5 * time.Second), want: map[string]checkpoint.Status{"a": checkpoint.Poison},
	},
	{
		name: "release on notice", minCalls: 16, wantLog: "job released",
		prepare: enqueueJobs("long", "steps"), act: evict, want: wantDone("long"),
	},
	{
		name: "priority move", minCalls: 18, wantLog: "job put on the on-demand queue",
		prepare: enqueueJobs("long", "steps"), act: runsFor(7 * time.Second), want: wantDone("long"),
		first: rig.MoveAfter(1), second: rig.TakeFromBoth,
	},
	{
		name: "release before a backlog", minCalls: 16, wantLog: "job put before the backlog",
		prepare: enqueueJobs("long", "steps", "a", "echo", "b", "echo"), act: runsFor(7 * time.Second), want: wantDone("long", "a", "b"),
		first: func(c *worker.Config) { c.Concurrency = 1 },
	},
	{
		name: "claim from the queue First", minCalls: 18, wantLog: "job released",
		prepare: func(_ *testing.T, b *rig.Bed, _ *scenarioRun) { b.PutOn(b.First, "long", "steps", "1") },
		act:     runsFor(7 * time.Second), want: wantDone("long"),
	},
	{
		name: "several queues", minCalls: 20, wantLog: "job released",
		prepare: enqueueOnShards, act: runsFor(7 * time.Second),
		want: map[string]checkpoint.Status{"a": checkpoint.Done, "long": checkpoint.Done},
	},
	{
		name: "move at a claim", minCalls: 14, wantLog: "job put on the on-demand queue",
		prepare: leaveOrphanDue(62 * time.Second), act: runsFor(10 * time.Second), want: wantDone("long"),
		first: rig.Changeover(10 * time.Second), second: rig.TakeFromBoth,
	},
	{
		name: "move of a waiting job", minCalls: 40, wantLog: "job put on the on-demand queue",
		prepare: enqueueDueBehind(50 * time.Second), act: runsFor(32 * time.Second),
		want:  map[string]checkpoint.Status{"a": checkpoint.Done, "long": checkpoint.Done},
		first: regularWorker(10 * time.Second), second: rig.TakeFromBoth,
	},
	{
		name: "expiring message", minCalls: 18, wantLog: "message would expire; put a new one for the job",
		prepare: enqueueExpiring("long", "steps", time.Hour), act: runsFor(7 * time.Second), want: wantDone("long"),
	},
	{
		name: "duplicate", minCalls: 28, wantLog: "message deferred",
		prepare: enqueueTwice, act: runsFor(50 * time.Second), want: wantDone("long"), twice: true,
	},
	{
		name: "cancelled while it runs", minCalls: 16, wantLog: "job was cancelled; stopping it",
		prepare: enqueueJobs("a", "waits", "b", "echo"), act: cancelled(12*time.Second, 10*time.Second, "a"),
		want: map[string]checkpoint.Status{"a": checkpoint.Cancelled, "b": checkpoint.Done},
	},
	{
		name: "cancelled while it waits", minCalls: 12, wantLog: "message deleted: its job is over already",
		prepare: enqueueAndCancel("a", "steps"), act: runsFor(5 * time.Second),
		want: map[string]checkpoint.Status{"a": checkpoint.Cancelled},
	},
	{
		name: "several at once", minCalls: 22, wantLog: "job released",
		prepare: enqueueJobs("a", "echo", "b", "fails", "long", "steps", "c", "hopeless"),
		act:     runsFor(7 * time.Second),
		want:    map[string]checkpoint.Status{"a": checkpoint.Done, "b": checkpoint.Done, "long": checkpoint.Done, "c": checkpoint.Poison},
	},
}

// handlers returns the handlers of the scenarios' jobs.
func (r *scenarioRun) handlers(l *recorder.Recorder) job.Kinds {
	r.work = &rig.Steps{N: 24, Each: 500 * time.Millisecond}
	large := &streamSteps{r.work}
	var once sync.Once
	return job.Kinds{
		"echo": rig.Echo, "steps": r.work, "large": large, "frozen": &frozenSteps{large, "this"},
		"prints": &rig.Printing{Steps: r.work}, "files": &reading{&rig.Storing{Steps: r.work}, r},
		"copies": job.HandlerFunc(copies),
		"fails": job.HandlerFunc(func(_ context.Context, j *job.Job) (_ []byte, err error) {
			once.Do(func() {
				l.HandlerFailed(j.ID, "handler")
				err = errors.New("first try")
			})
			return []byte("ok"), err
		}),
		"waits": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(time.Minute):
				return []byte("waited"), nil
			}
		}),
		"hopeless": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("it cannot be done"))
		}),
	}
}

// enqueueJobs enqueues jobs, given as ids and kinds in turn.
func enqueueJobs(jobs ...string) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(_ *testing.T, b *rig.Bed, _ *scenarioRun) {
		for i := 0; i < len(jobs); i += 2 {
			b.Put(jobs[i], jobs[i+1], "1")
		}
	}
}

// enqueueOnShards enqueues jobs on two queues of jobs, one of them on both.
func enqueueOnShards(_ *testing.T, b *rig.Bed, _ *scenarioRun) {
	b.UseShards(queue.ShardCounts{Put: 2, Taken: 2})
	first, second := b.Jobs.All()[0], b.Jobs.All()[1]
	b.PutOn(first, "a", "echo", "1")
	b.PutOn(second, "long", "steps", "1")
	b.PutOn(second, "a", "echo", "1")
}

// cancelled lets the worker run for that long, cancels jobs as an operator does, and
// lets it run on.
func cancelled(after, runsOn time.Duration, ids ...string) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, _ *scenarioRun) {
		time.Sleep(after)
		b.CancelJobs(ids...)
		time.Sleep(runsOn)
	}
}

// enqueueAndCancel enqueues a job and cancels it before any worker runs.
func enqueueAndCancel(id, kind string) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, r *scenarioRun) {
		enqueueJobs(id, kind)(t, b, r)
		b.CancelJobs(id)
	}
}

// enqueueLarge enqueues a job whose payload is too large for its message.
func enqueueLarge(id, kind string) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, _ *scenarioRun) {
		e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(), Payload: queue.BytesPayload([]byte(strings.Repeat("x", 50<<10)))}
		e, err := b.Payloads.Offload(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Queue.Put(t.Context(), e, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// enqueueDueBehind enqueues a job with a deadline behind a job without.
func enqueueDueBehind(due time.Duration) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, r *scenarioRun) {
		enqueueJobs("a", "echo")(t, b, r)
		b.PutDue("long", "steps", due, 12*time.Second)
	}
}

// regularWorker configures a worker of regular priority that searches the queue of jobs.
func regularWorker(changeover time.Duration) func(*worker.Config) {
	return func(c *worker.Config) {
		rig.TakeOnDemand(c)
		rig.Changeover(changeover)(c)
	}
}

// enqueueExpiring enqueues a job in a message that expires, as foreign tools send it.
func enqueueExpiring(id, kind string, after time.Duration) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, _ *scenarioRun) {
		text, err := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now()}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b.PutText(text, after)
	}
}

// enqueueWithInputs enqueues a job that needs two files, and stores one at each of its
// steps.
func enqueueWithInputs(t *testing.T, b *rig.Bed, r *scenarioRun) { enqueueFiles(t, b, r, "files") }

// enqueueFiles is enqueueWithInputs for a job of that kind.
func enqueueFiles(t *testing.T, b *rig.Bed, r *scenarioRun, kind string) {
	b.CacheInputs = filepath.Join(t.TempDir(), "inputs")
	b.PutData("in/1", "one")
	b.PutData("in/2", "two")
	b.PutWithInputs("long", kind, job.Input{Container: "data", Prefix: "in/"})
	b.Recorder.ExpectOutputs("long", rig.StepOutputs("long"))
	r.inputs = "1=one;2=two;"
}

// changeInputs leaves a job that has stored outputs when its worker was killed, and whose
// inputs have changed since.
func changeInputs(kind string) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, r *scenarioRun) {
		enqueueFiles(t, b, r, kind)
		p := b.Start("vm_9", r.kinds)
		time.Sleep(7 * time.Second)
		if b.Record("long").Outputs.Files == 0 {
			t.Fatal("no outputs are recorded after 7s")
		}
		p.Kill()
		r.work.Forget()
		b.PutData("in/2", "changed")
		r.inputs = "1=one;2=changed;"
		time.Sleep(25 * time.Second) // until its message is almost visible
	}
}

// replayFromScratch leaves a job that was dead-lettered because its inputs changed, and that
// an operator has replayed from scratch.
func replayFromScratch(t *testing.T, b *rig.Bed, r *scenarioRun) {
	changeInputs("files")(t, b, r)
	p := b.Start("vm_8", r.kinds)
	b.WaitFor("the job is dead-lettered", time.Minute, func() bool { return b.Record("long").Status == checkpoint.Poison && b.Hidden() == 0 })
	p.Stop()
	b.Replay(true, "long")
}

// copies stores a file every half second, without a state, and none that is there.
func copies(ctx context.Context, j *job.Job) ([]byte, error) {
	for n := len(j.Outputs()); n < rig.StoredSteps; n++ {
		content := rig.StepOutputs(j.ID).Content(n)
		if err := j.SendOutput(ctx, rig.StepFile(n), strings.NewReader(content)); err != nil {
			return nil, err
		}
		if !rig.SleepFor(ctx, 500*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
	return []byte("copied"), nil
}

// reading is storing for a job that fails if its inputs are not the scenario's.
type reading struct {
	*rig.Storing
	scenario *scenarioRun
}

func (r *reading) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	found, err := rig.ReadInputs(j)
	if err == nil && found != r.scenario.inputs {
		err = job.Permanent(fmt.Errorf("the inputs are %q", found))
	}
	if err != nil {
		return nil, err
	}
	return r.Storing.Run(ctx, j)
}

// enqueueTwice enqueues a job twice.
func enqueueTwice(t *testing.T, b *rig.Bed, r *scenarioRun) {
	enqueueJobs("long", "steps", "long", "steps")(t, b, r)
}

// leaveOrphan leaves a job whose worker was killed.
func leaveOrphan(t *testing.T, b *rig.Bed, r *scenarioRun) { leaveOrphanDue(0)(t, b, r) }

// leaveFrozen leaves a job of a program that was frozen, whose worker has died.
func leaveFrozen(t *testing.T, b *rig.Bed, r *scenarioRun) {
	b.Put("long", "frozen", "1")
	killWithState(t, b, r)
}

// leaveOrphanDue is leaveOrphan for a job of 12 s with a deadline; 0 is none. With one it
// waits until the message is almost visible.
func leaveOrphanDue(due time.Duration) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(t *testing.T, b *rig.Bed, r *scenarioRun) {
		b.PutDue("long", "steps", due, 12*time.Second)
		killWithState(t, b, r)
		if due > 0 {
			time.Sleep(22 * time.Second)
		}
	}
}

// killWithState runs the job long on a worker that dies after a checkpoint.
func killWithState(t *testing.T, b *rig.Bed, r *scenarioRun) {
	p := b.Start("vm_9", r.kinds)
	time.Sleep(7 * time.Second)
	if !b.Record("long").HasState() {
		t.Fatal("no checkpoint after 7s")
	}
	p.Kill()
	r.work.Forget()
}

// runsFor lets the worker run for that long.
func runsFor(d time.Duration) func(*testing.T, *rig.Bed, *scenarioRun) {
	return func(*testing.T, *rig.Bed, *scenarioRun) { time.Sleep(d) }
}

// evict announces the eviction of the worker's VM, and kills the worker 30 s later.
func evict(t *testing.T, b *rig.Bed, r *scenarioRun) {
	time.Sleep(7 * time.Second)
	if _, err := b.Metadata.SimulateEviction(subject); err != nil {
		t.Error(err)
	}
	time.Sleep(30 * time.Second)
	r.first.Kill()
}

// wantDone expects these jobs to be done.
func wantDone(ids ...string) map[string]checkpoint.Status {
	want := map[string]checkpoint.Status{}
	for _, id := range ids {
		want[id] = checkpoint.Done
	}
	return want
}

// smallChunk is the block size of large states in scenarios, in bytes: under the race
// detector copying whole MiBs would take most of the time.
const smallChunk = 4 << 10

// streamSteps is steps with a streamed state of four blocks; the first changes.
type streamSteps struct{ *rig.Steps }

func (s *streamSteps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	return s.run(ctx, j, func(p job.Progress) job.Progress { return p })
}

// run does the steps, and reports the progress that change returns.
func (s *streamSteps) run(ctx context.Context, j *job.Job, change func(job.Progress) job.Progress) ([]byte, error) {
	next, err := readNumber(j)
	if err != nil {
		return nil, err
	}
	return s.RunFrom(ctx, j, next, func(n int) job.Progress {
		return change(job.Progress{Stream: func() (io.ReadCloser, error) {
			number := binary.BigEndian.AppendUint32(nil, uint32(n))
			return io.NopCloser(io.MultiReader(bytes.NewReader(number), bytes.NewReader(make([]byte, 3*smallChunk)))), nil
		}})
	})
}

// readNumber returns the number in a streamed state, 0 on a fresh start.
func readNumber(j *job.Job) (int, error) {
	r, _, err := j.OpenSaved()
	if r == nil || err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	var number [4]byte
	if _, err := io.ReadFull(r, number[:]); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != 3*smallChunk {
		err = job.Permanent(fmt.Errorf("restored a state that was never saved: %d bytes after its number", n))
	}
	return int(binary.BigEndian.Uint32(number[:])), err
}

// frozenSteps is streamSteps with the states of a frozen program: of version 16, for machines
// like the one before.
type frozenSteps struct {
	*streamSteps
	machine string
}

func (s *frozenSteps) Offer() string { return s.machine }

func (s *frozenSteps) CheckNeeds(needs string) error {
	if needs != s.machine+" kernel=6" {
		return errors.New("the machine was another one")
	}
	return nil
}

func (s *frozenSteps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	return s.run(ctx, j, func(p job.Progress) job.Progress {
		p.Version, p.Needs = 16, s.machine+" kernel=6"
		return p
	})
}

// onOtherMachine makes a worker unable to continue frozen programs of the others.
func onOtherMachine(c *worker.Config) {
	c.Kinds = maps.Clone(c.Kinds)
	c.Kinds["frozen"] = &frozenSteps{c.Kinds["frozen"].(*frozenSteps).streamSteps, "other"}
}
