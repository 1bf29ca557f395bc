package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/job"
)

// scenario is a worker's life, at each of whose storage calls faults happen.
type scenario struct {
	name  string
	least int    // calls in a life to which nothing happens
	shows string // a line of that life's log: the scenario is what its name says

	put           func(*testing.T, *bench, *rehearsal) // prepares storage
	first, second func(*Config)                        // the worker in question, and who takes over
	live          func(*testing.T, *bench, *rehearsal) // what it lives through until it is told to end
	want          map[string]checkpoint.Status         // of each job

	// twice says that a job is put twice, so that two first deliveries may work
	// side by side until one of them writes.
	twice bool
}

var scenarios = []scenario{
	{
		name: "short job", least: 10, shows: "job committed",
		put: puts("a", "echo"), live: lasts(5 * time.Second), want: done("a"),
	},
	{
		name: "long job", least: 20, shows: "job committed",
		put: puts("long", "steps"), live: lasts(20 * time.Second), want: done("long"),
	},
	{
		name: "large state", least: 18, shows: "job released",
		put: puts("long", "large"), live: lasts(9 * time.Second), want: done("long"),
	},
	{
		name: "claim check", least: 12, shows: "job committed",
		put: putsLarge("a", "echo"), live: lasts(5 * time.Second), want: done("a"),
	},
	{
		name: "redelivery", least: 18, shows: "job committed",
		put: putsOrphan, live: lasts(50 * time.Second), want: done("long"),
	},
	{
		name: "failure", least: 14, shows: "job failed; it will be tried again",
		put: puts("a", "fails"), live: lasts(15 * time.Second), want: done("a"),
	},
	{
		name: "poison", least: 14, shows: "message moved to the poison queue",
		put: puts("a", "hopeless"), live: lasts(5 * time.Second), want: map[string]checkpoint.Status{"a": checkpoint.Poison},
	},
	{
		name: "release on notice", least: 16, shows: "job released",
		put: puts("long", "steps"), live: evicted, want: done("long"),
	},
	{
		name: "priority move", least: 18, shows: "job put on the on-demand queue",
		put: puts("long", "steps"), live: lasts(7 * time.Second), want: done("long"),
		first: moveAfter(1), second: takeFromBoth,
	},
	{
		name: "expiring message", least: 18, shows: "message would expire; put a new one for the job",
		put: putsExpiring("long", "steps", time.Hour), live: lasts(7 * time.Second), want: done("long"),
	},
	{
		name: "duplicate", least: 28, shows: "message put back",
		put: putsTwice, live: lasts(50 * time.Second), want: done("long"), twice: true,
	},
	{
		name: "several at once", least: 22, shows: "job released",
		put:  puts("a", "echo", "b", "fails", "long", "steps", "c", "hopeless"),
		live: lasts(7 * time.Second),
		want: map[string]checkpoint.Status{"a": checkpoint.Done, "b": checkpoint.Done, "long": checkpoint.Done, "c": checkpoint.Poison},
	},
}

// handlers are the kinds that scenarios have jobs of.
func (r *rehearsal) handlers(l *ledger) job.Kinds {
	r.work = &steps{n: 24, each: 500 * time.Millisecond}
	large := &streamSteps{r.work}
	var once sync.Once
	return job.Kinds{
		"echo": echo, "steps": r.work, "large": large,
		"fails": job.HandlerFunc(func(_ context.Context, j *job.Job) (_ []byte, err error) {
			once.Do(func() {
				l.handlerFailed(j.ID, "handler")
				err = errors.New("first try")
			})
			return []byte("ok"), err
		}),
		"hopeless": job.HandlerFunc(func(context.Context, *job.Job) ([]byte, error) {
			return nil, job.Permanent(errors.New("it cannot be done"))
		}),
	}
}

// puts enqueues jobs, given as ids and kinds in turn.
func puts(jobs ...string) func(*testing.T, *bench, *rehearsal) {
	return func(_ *testing.T, b *bench, _ *rehearsal) {
		for i := 0; i < len(jobs); i += 2 {
			b.put(jobs[i], jobs[i+1], "1")
		}
	}
}

// putsLarge enqueues a job whose payload does not fit into its message.
func putsLarge(id, kind string) func(*testing.T, *bench, *rehearsal) {
	return func(t *testing.T, b *bench, _ *rehearsal) {
		e := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now(), Payload: queue.BytesPayload([]byte(strings.Repeat("x", 50<<10)))}
		e, err := b.payloads.Offload(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.queue.Put(t.Context(), e, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// putsExpiring enqueues a job as a tool does whose messages expire.
func putsExpiring(id, kind string, after time.Duration) func(*testing.T, *bench, *rehearsal) {
	return func(t *testing.T, b *bench, _ *rehearsal) {
		text, err := queue.Envelope{ID: id, Kind: kind, EnqueuedAt: time.Now()}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b.putText(text, after)
	}
}

// putsTwice enqueues a job twice.
func putsTwice(t *testing.T, b *bench, r *rehearsal) {
	puts("long", "steps", "long", "steps")(t, b, r)
}

// putsOrphan leaves a job behind whose worker died uncleanly.
func putsOrphan(t *testing.T, b *bench, r *rehearsal) {
	puts("long", "steps")(t, b, r)
	p := b.start("vm_9", r.kinds)
	time.Sleep(7 * time.Second)
	if !b.record("long").HasState() {
		t.Fatal("no checkpoint after 7s")
	}
	p.kill()
	r.work.forget()
}

// lasts lets the worker live for that long, from its start.
func lasts(d time.Duration) func(*testing.T, *bench, *rehearsal) {
	return func(*testing.T, *bench, *rehearsal) { time.Sleep(d) }
}

// evicted announces the eviction of the worker's VM, and takes the VM away when
// its notice is over.
func evicted(t *testing.T, b *bench, r *rehearsal) {
	time.Sleep(7 * time.Second)
	if _, err := b.metadata.SimulateEviction(subject); err != nil {
		t.Error(err)
	}
	time.Sleep(30 * time.Second)
	r.first.kill()
}

// done wants these jobs to be done.
func done(ids ...string) map[string]checkpoint.Status {
	want := map[string]checkpoint.Status{}
	for _, id := range ids {
		want[id] = checkpoint.Done
	}
	return want
}

// smallChunk is how large states are cut in scenarios, in bytes: under the race
// detector copying whole MiBs takes most of the time.
const smallChunk = 4 << 10

// streamSteps is steps with a state of four blocks, the first of which changes.
type streamSteps struct{ *steps }

func (s *streamSteps) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next, err := readNumber(j)
	if err != nil {
		return nil, err
	}
	return s.runFrom(ctx, j, next, func(n int) job.Progress {
		return job.Progress{Stream: func() (io.ReadCloser, error) {
			number := binary.BigEndian.AppendUint32(nil, uint32(n))
			return io.NopCloser(io.MultiReader(bytes.NewReader(number), bytes.NewReader(make([]byte, 3*smallChunk)))), nil
		}}
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
