package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// untilEnd runs the first visible message at each step, and returns how long the queue was not empty.
func (b *bench) untilEnd(limit, step time.Duration) (took time.Duration, deliveries int) {
	b.T.Helper()
	for begun := time.Now(); ; time.Sleep(b.untilVisible(step)) {
		took = time.Since(begun)
		switch {
		case b.MessagesLeft() == 0 || took > limit:
			return took, deliveries
		case b.visible() > 0:
			b.runOne()
			deliveries++
		}
	}
}

// untilVisible returns the time until a message is visible, in whole steps, one at least.
func (b *bench) untilVisible(step time.Duration) time.Duration {
	var wait time.Duration
	for i, m := range b.Server.Messages(b.Names.Queue) {
		if until := time.Until(m.NextVisible); i == 0 || until < wait {
			wait = until
		}
	}
	return max((wait+step-1)/step, 1) * step
}

// TestKindOfNoWorker: a message whose kind no worker has waits for an hour, and then is poison with the
// nearest name. A job in progress waits on.
func TestKindOfNoWorker(t *testing.T) {
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		b.Put("a", "rendr", "")
		took, deliveries := b.untilEnd(2*time.Hour, time.Second)
		if took < time.Hour || took > 67*time.Minute || deliveries > 40 {
			t.Errorf("gone after %s and %d deliveries, want an hour, and at most 40", took, deliveries)
		}
		want := `no worker has a handler for kind "rendr" (did you mean "render"?), for 1h0m0s`
		if r := b.Record("a"); r.Status != checkpoint.Poison || r.Reason != want {
			t.Errorf("record = %s %q, want it poison, with the nearest kind", r.Status, r.Reason)
		}
		if n := b.Sight().Lacking; len(n) != 0 || b.counter.Of("failed other, exits")["failed other, exits"] != 1 {
			t.Errorf("jobs that wait for a kind = %v, want none at the end", n)
		}
	})
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		b.putOpen("a", "other", checkpoint.Snapshot{State: []byte("s"), Fraction: 0.5})
		if took, _ := b.untilEnd(3*time.Hour, time.Second); took < 3*time.Hour || b.Record("a").Status != checkpoint.Open {
			t.Errorf("a job in progress is %s after %s, want it to wait", b.Record("a").Status, took)
		}
		if diff := cmp.Diff(map[string]int{"other": 1}, b.Sight().Lacking); diff != "" || b.lines(
			"job in progress waits for a worker with its kind: start one, or purge the job's message") == 0 {
			t.Errorf("jobs that wait for a kind (-want +got)\n%s", diff)
		}
	})
}

// TestKindOfAnotherWorker: a message of a kind that no worker has, or that is paused, waits a quarter of the time
// since it was first put back, and of a kind that another worker has or may have a second.
func TestKindOfAnotherWorker(t *testing.T) {
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		b.Put("a", "other", "")
		first := time.Now()
		waits := func(while string, want time.Duration) {
			t.Helper()
			if got := b.runOne(); got == delivery.Ran {
				t.Errorf("result = %d, want the message requeued", got)
			}
			begun := time.Now()
			b.WaitFor("the message", 10*time.Minute, func() bool { return b.visible() == 1 })
			if want == 0 {
				want = max(begun.Sub(first)/4, 5*time.Second)
			}
			if d := time.Since(begun); d < want*2/3 || d > want*4/3+2*time.Second {
				t.Errorf("hidden for %s while %s, want %s give or take a quarter", d, while, want)
			}
		}
		waits("no worker has the kind", 0)
		heartbeat := func(kinds ...string) {
			t.Helper()
			p := presence.Presence{Worker: "vm_1-boot-1", State: "process", Kinds: kinds, TakesFrom: []string{b.Names.Queue}}
			if err := b.Workers.Write(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(rig.SampleEvery)
		heartbeat("other")
		waits("another worker has the kind", time.Second)
		end := b.down(on(b.Names.Workers, storage.OpListBlobs))
		time.Sleep(rig.SampleEvery)
		waits("heartbeats cannot be listed", time.Second)
		end()
		b.Follow(&control.Document{PausedKinds: map[string]control.Mark{"other": {}}})
		waits("the kind is paused", 0)
		if n := b.counter.Of("ended put_back")["ended put_back"]; n != 4 {
			t.Errorf("%d deliveries ended put back, want 4", n)
		}
		if most, wait := b.Claimable(5, time.Now()); most != 5 || wait != 0 {
			t.Errorf("claimable = %d after %s, want 5: another kind is not paused", most, wait)
		}
		b.Follow(&control.Document{PausedKinds: map[string]control.Mark{"render": {}}})
		if most, wait := b.Claimable(5, time.Now()); most != 0 || wait != time.Second {
			t.Errorf("claimable while all kinds are paused = %d after %s, want none for a second", most, wait)
		}
	})
}

// TestKindFoundWhileHidden: a job no longer counts as one that waits for its kind once a worker with the kind is seen.
func TestKindFoundWhileHidden(t *testing.T) {
	onBench(t, job.Kinds{"render": rig.Echo}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		b.runOne()
		if diff := cmp.Diff(map[string]int{"k": 1}, b.Sight().Lacking); diff != "" {
			t.Errorf("jobs that wait for a kind (-want +got)\n%s", diff)
		}
		if err := b.Workers.Write(t.Context(), b.other()); err != nil {
			t.Fatal(err)
		}
		b.WaitFor("the message", 10*time.Minute, func() bool { return b.visible() == 1 })
		if _, err := b.config.Fleet.Sample(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if b.runOne() == delivery.Ran || len(b.Sight().Lacking) != 0 {
			t.Errorf("jobs that wait for a kind that another worker has = %v, want none", b.Sight().Lacking)
		}
	})
}

// picky is a handler whose states need a machine of a name.
type picky struct{ machine string }

func (p picky) Offer() string { return p.machine }

func (p picky) CheckNeeds(needs string) error {
	if needs != p.machine {
		return fmt.Errorf("it needs %s, and this is %s", needs, p.machine)
	}
	return nil
}

func (p picky) Run(_ context.Context, j *job.Job) ([]byte, error) {
	state, _, _ := j.Saved()
	return state, nil
}

// TestNeedsOfNoWorker: a job whose state needs a machine that no worker has waits for a day, with growing
// delays, and then is poison; its record was not acquired before. A worker that has just started waits longer.
func TestNeedsOfNoWorker(t *testing.T) {
	for name, row := range map[string]struct {
		started    time.Duration // before the job's day is over
		least      time.Duration
		deliveries int
	}{
		"a worker that runs for long":     {24 * time.Hour, 24 * time.Hour, 400},
		"a worker that has just started":  {10 * time.Minute, 24*time.Hour + 5*time.Minute, 20},
		"a worker that started in time":   {16 * time.Minute, 24 * time.Hour, 20},
		"a worker that starts much later": {-time.Hour, 25*time.Hour + 15*time.Minute, 20},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": picky{"small"}}, func(t *testing.T, b *bench) {
				released := time.Now()
				b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s"), Needs: "large"})
				time.Sleep(24*time.Hour - row.started)
				b.config.Started = time.Now()
				b.Runner = delivery.NewRunner(b.config)
				b.SetOwner("vm_0-boot-1")
				if b.runOne(); b.Record("a").Generation != 1 || b.Sight().Unlike["k"] != 1 {
					t.Errorf("record of generation %d, %v wait for a machine; want it not acquired, and one", b.Record("a").Generation, b.Sight().Unlike)
				}
				_, deliveries := b.untilEnd(26*time.Hour, 5*time.Second)
				waited := time.Since(released)
				if waited < row.least-10*time.Second || waited > row.least+7*time.Minute || deliveries > row.deliveries {
					t.Errorf("poison %s after its release, by %d deliveries; want %s, at most %d", waited, deliveries, row.least, row.deliveries)
				}
				r := b.Record("a")
				if r.Status != checkpoint.Poison || !strings.Contains(r.Reason, "for 24h0m0s: it cannot continue here: it needs large") ||
					!strings.HasPrefix(r.Reason, "no live worker of queue "+b.Names.Queue+" has been") ||
					!r.HasState() || b.Sight().Unlike["k"] != 0 {
					t.Errorf("record = %s %q, state %t, want it poison with its state", r.Status, r.Reason, r.HasState())
				}
			})
		})
	}
}

// TestNeedsOfAnotherWorker: while another worker has the machine, the message is hidden for short; a worker
// that meets the needs runs the job at once.
func TestNeedsOfAnotherWorker(t *testing.T) {
	onBench(t, job.Kinds{"k": picky{"small"}}, func(t *testing.T, b *bench) {
		p := presence.Presence{Worker: "vm_1-boot-1", State: "process", Kinds: []string{"k"}, TakesFrom: []string{b.Names.Queue}}
		p.Offers = []string{"large"}
		if err := b.Workers.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		b.putOpen("a", "k", checkpoint.Snapshot{State: []byte("s"), Needs: "large"})
		begun := time.Now()
		if got := b.runOne(); got != delivery.Unfit || len(b.Sight().Unlike) != 0 {
			t.Errorf("result %d, %v wait; want the message requeued for the other worker", got, b.Sight().Unlike)
		}
		b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
		if d := time.Since(begun); d > 8*time.Second {
			t.Errorf("hidden for %s, want about 5 s", d)
		}
		b.config.Kinds = job.Kinds{"k": picky{"large"}}
		b.Runner = delivery.NewRunner(b.config)
		b.SetOwner("vm_1-boot-1")
		if b.runOne(); b.Record("a").Status != checkpoint.Done {
			t.Errorf("record = %s, want done on a machine that meets the needs", b.Record("a").Status)
		}
	})
}

// TestFollowUpsOfAJob: the follow-up jobs that a handler may put, and the effect of an error on its job.
func TestFollowUpsOfAJob(t *testing.T) {
	for name, row := range map[string]struct {
		f       job.FollowUp
		status  checkpoint.Status
		reason  string
		left    int // messages
		payload string
	}{
		"bytes":            {job.FollowUp{Name: "x", Kind: "child", Payload: []byte("raw")}, checkpoint.Done, "", 1, "raw"},
		"JSON":             {job.FollowUp{Name: "x", Kind: "child", Payload: map[string]int{"a": 1}}, checkpoint.Done, "", 1, `{"a":1}`},
		"no kind":          {job.FollowUp{Name: "x"}, checkpoint.Poison, "kind", 0, ""},
		"its input":        {job.FollowUp{Name: "x", Kind: "child", Inputs: []job.Input{{}}}, checkpoint.Poison, "input", 0, ""},
		"a delay":          {job.FollowUp{Name: "x", Kind: "child", Delay: queue.MaxDelay}, checkpoint.Done, "", 1, ""},
		"too long a delay": {job.FollowUp{Name: "x", Kind: "child", Delay: queue.MaxDelay + time.Second}, checkpoint.Poison, "delay", 0, ""},
		"a negative delay": {job.FollowUp{Name: "x", Kind: "child", Delay: -1}, checkpoint.Poison, "delay", 0, ""},
		"too much": {job.FollowUp{Name: "x", Kind: "child", Payload: make([]byte, queue.MaxPayload+1)}, checkpoint.Poison, "payload has", 0,
			""},
		"the largest": {job.FollowUp{Name: "x", Kind: "child", Payload: make([]byte, queue.MaxPayload)}, checkpoint.Done, "", 1, ""},
	} {
		if payload, _ := row.f.Payload.([]byte); len(payload) >= queue.MaxPayload && !proof.Full() {
			continue // 64 MiB
		}
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				_, err := j.Put(ctx, row.f)
				return nil, err
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				r := b.Record("a")
				if r.Status != row.status || !strings.Contains(r.Reason, row.reason) || b.MessagesLeft() != row.left || r.FailuresTotal != 0 {
					t.Errorf("record = %s %q after %d failures, %d messages; want %s, %q, none, %d", r.Status, r.Reason, r.FailuresTotal,
						b.MessagesLeft(), row.status, row.reason, row.left)
				}
				names, _ := r.FollowUps.IDs()
				if put := row.status == checkpoint.Done; put != (len(names) == 1) {
					t.Errorf("follow-up jobs in the record = %v, want one: %t", names, put)
				}
				if row.payload != "" {
					e, err := queue.Decode(b.Server.Messages(b.Names.Queue)[0].Text)
					data, _ := e.Payload.Inline()
					if err != nil || string(data) != row.payload || !e.ChosenID || e.Kind != "child" || e.EnqueuedAt.IsZero() {
						t.Errorf("follow-up job = %+v with %q, %v; want %q", e, data, err, row.payload)
					}
				}
			})
		})
	}
}

// TestTracedEndIsRepeated: an outcome that storage refused is carried out again, also if the delivery has a trace.
func TestTracedEndIsRepeated(t *testing.T) {
	trace := func(b *bench) { b.config.Tracer = tracing.New(sdk.NewTracerProvider(), "1") }
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Minute) })
	onBench(t, kinds, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		time.AfterFunc(50*time.Second, func() {
			time.AfterFunc(20*time.Second, b.down(func(c storage.Call) bool { return c.Container == b.Names.Records }))
		})
		if b.runOne() != delivery.Ran || b.MessagesLeft() != 0 || b.Record("a").Status != checkpoint.Done {
			t.Errorf("record = %s with %d messages, want it done", b.Record("a").Status, b.MessagesLeft())
		}
	}, trace)
}

// TestSpansOfADelivery: the trace of a delivery has its steps, the outcome, and the failure of its job.
func TestSpansOfADelivery(t *testing.T) {
	for name, row := range map[string]struct {
		err     error
		outcome string
		status  string
		steps   string
	}{
		"done":   {nil, "committed", "", "recover handler checkpoint commit process test-queue"},
		"failed": {errors.New("out of luck"), "failed", "job failed: error", "recover handler checkpoint fail process test-queue"},
		"break":  {job.Interrupted(errors.New("later")), "released", "", "recover handler checkpoint release process test-queue"},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
			trace := func(b *bench) { b.config.Tracer = tracing.New(provider, "1") }
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				j.Report(job.Progress{State: []byte("12345")})
				return nil, errors.Join(sleeps(ctx, time.Minute), row.err)
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				b.runOne()
				var steps []string
				attributes := map[string]string{}
				for _, s := range spans.Ended() {
					steps = append(steps, strings.Replace(s.Name(), b.Names.Queue, "test-queue", 1))
					for _, a := range s.Attributes() {
						attributes[string(a.Key)] = a.Value.String()
					}
					if strings.HasPrefix(s.Name(), "process") && s.Status().Description != row.status {
						t.Errorf("status of the delivery = %q, want %q", s.Status().Description, row.status)
					}
				}
				for step := range strings.FieldsSeq(row.steps) {
					if !strings.Contains(strings.Join(steps, " "), step) {
						t.Errorf("spans = %q, want %q among them", steps, step)
					}
				}
				for key, want := range map[string]string{
					"spotworker.worker": "vm_0-boot-1", "spotworker.outcome": row.outcome, "spotworker.job.generation": "1",
					"spotworker.checkpoint.bytes": "5",
				} {
					if attributes[key] != want {
						t.Errorf("%s = %q, want %q", key, attributes[key], want)
					}
				}
			}, trace)
		})
	}
}

// TestSpansOfLostJobs: the trace of a delivery that lost its record, or could not hand its job over, has that outcome. A failure of a job
// that another worker has by then is none, as the save of its streamed state shows first.
func TestSpansOfLostJobs(t *testing.T) {
	for outcome, lose := range map[string]func(b *bench){
		"dropped": func(b *bench) { b.loseWorker("a") },
		"left": func(b *bench) {
			b.down(func(storage.Call) bool { return true })
			b.drainNow(10 * time.Second)
		},
	} {
		t.Run(outcome, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			trace := func(b *bench) {
				b.config.Tracer = tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), "1")
			}
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if !rig.SleepFor(ctx, 14*time.Second) {
					return nil, nil
				}
				j.Report(job.Progress{Stream: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("s")), nil }})
				return nil, errors.New("out of luck")
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				b.Put("a", "k", "")
				wait := b.begin(b.claim())
				time.Sleep(12 * time.Second) // the record is there after 10 s
				lose(b)
				wait()
				for _, s := range spans.Ended() {
					if !strings.HasPrefix(s.Name(), "process") {
						continue
					}
					found := ""
					for _, a := range s.Attributes() {
						if a.Key == "spotworker.outcome" {
							found = a.Value.AsString()
						}
					}
					if found != outcome || s.Status().Description != "" || b.counter.WithPrefix("failed") != 0 {
						t.Errorf("outcome %q, status %q, %d failures; want %q, no failure", found, s.Status().Description,
							b.counter.WithPrefix("failed"), outcome)
					}
				}
				if ended := "ended " + outcome; b.counter.Of(ended)[ended] != 1 || len(spans.Ended()) == 0 {
					t.Errorf("%q %d times, %d spans; want once, some", ended, b.counter.Of(ended)[ended], len(spans.Ended()))
				}
			}, trace)
		})
	}
}

// TestWaitForPayloadMemory: a job whose payload does not fit beside the payloads of others waits for memory, keeps its
// message, and is released when the worker stops.
func TestWaitForPayloadMemory(t *testing.T) {
	var started atomic.Int64
	kinds := handle(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		started.Add(1)
		return nil, sleeps(ctx, 2*time.Minute)
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		var waits []func() delivery.Result
		for _, id := range []string{"a", "b", "c"} {
			b.PutLarge(id, "k", make([]byte, 600<<10)) // of 1 MiB
		}
		for range 3 {
			waits = append(waits, b.begin(b.claim()))
		}
		time.Sleep(time.Minute)
		const line = "job waits for memory: the payloads of other jobs take all of it"
		if n := started.Load(); n != 1 || b.lines(line) != 2 {
			t.Fatalf("%d jobs started, %d wait for memory; want 1 and 2", n, b.lines(line))
		}
		time.Sleep(90 * time.Second) // the first has ended
		b.drainNow(10 * time.Second)
		for _, wait := range waits {
			wait()
		}
		if n := started.Load(); n != 2 || b.MessagesLeft() != 2 || b.visible() != 2 {
			t.Errorf("%d jobs started, %d messages, %d of them visible; want 2, 2, 2", n, b.MessagesLeft(), b.visible())
		}
	})
}

// TestPayloadMemoryIsFreed: the memory of a payload is free again once the handler drops it, the job has ended, or the job is not started.
func TestPayloadMemoryIsFreed(t *testing.T) {
	for name, running := range map[string]bool{"dropped": true, "done": false, "not started": false} {
		t.Run(name, func(t *testing.T) {
			kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) {
				if name == "dropped" {
					j.DropPayload()
					return nil, sleeps(ctx, time.Minute)
				}
				return nil, nil
			})
			onBench(t, kinds, func(t *testing.T, b *bench) {
				for _, id := range []string{"a", "b"} {
					b.PutLarge(id, "k", make([]byte, 600<<10)) // of 1 MiB
				}
				if name == "not started" {
					if err := b.Payloads.Discard(t.Context(), decoded(t, b.Server.Messages(b.Names.Queue)[0].Text)); err != nil {
						t.Fatal(err)
					}
				}
				first := b.begin(b.claim())
				time.Sleep(time.Second)
				second := b.begin(b.claim())
				time.Sleep(time.Second)
				if got := len(b.Running()) == 2; got != running || !running && b.Record("b").Status != checkpoint.Done ||
					b.lines("job waits for memory: the payloads of other jobs take all of it") != 0 {
					t.Errorf("both jobs run: %t, record of the second %q; want %t, and that none waits", got, b.Record("b").Status, running)
				}
				b.drainNow(10 * time.Second)
				first()
				second()
			})
		})
	}
}

// TestPayloadThatIsGone: a job whose payload blob is gone is poison, also if it has an open record, and its message is removed if its
// record shows that the job is done.
func TestPayloadThatIsGone(t *testing.T) {
	for name, status := range map[string]checkpoint.Status{
		"not done": checkpoint.Poison, "done": checkpoint.Done, "released": checkpoint.Poison,
	} {
		onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
			b.PutLarge("a", "k", make([]byte, 100<<10))
			text := b.Server.Messages(b.Names.Queue)[0].Text
			if status == checkpoint.Done {
				b.runOne()
				b.PutText(text)
			} else if err := b.Payloads.Discard(t.Context(), decoded(t, text)); err != nil {
				t.Fatal(err)
			}
			if name == "released" {
				d := former(decoded(t, text))
				if err := b.Records.Fresh(d, "vm_9-boot-1").Release(t.Context(), checkpoint.Snapshot{State: []byte("s")}); err != nil {
					t.Fatal(err)
				}
			}
			b.runOne()
			if r := b.Record("a"); r.Status != status || b.MessagesLeft() != 0 || (len(b.PoisonMessages()) == 1) != (status == checkpoint.Poison) {
				t.Errorf("%s: record = %s %q, %d messages, %d in the poison queue", name, r.Status, r.Reason, b.MessagesLeft(), len(b.PoisonMessages()))
			}
		})
	}
}

func decoded(t *testing.T, text string) queue.Envelope {
	t.Helper()
	e, err := queue.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestInvalidEnvelope: a message that this version cannot read goes to the poison queue with its job's id.
func TestInvalidEnvelope(t *testing.T) {
	onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
		b.PutText(`{"v":99,"id":"a","kind":"k"}`)
		b.runOne()
		poison := b.PoisonMessages()
		if len(poison) != 1 || poison[0].ID != "a" || b.MessagesLeft() != 0 {
			t.Errorf("poison messages = %+v with %d messages left, want the job a alone", poison, b.MessagesLeft())
		}
	})
}

// TestDefaultKind: a worker with a default kind runs a message that is no envelope as a job of that kind. Envelopes keep their kind, and
// an envelope that cannot be read goes to the poison queue.
func TestDefaultKind(t *testing.T) {
	var ran []string
	run := func(kind string) job.Handler {
		return job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			ran = append(ran, kind+" "+string(j.Payload))
			return nil, nil
		})
	}
	onBench(t, job.Kinds{"k": run("k"), "plain": run("plain")}, func(t *testing.T, b *bench) {
		b.Put("a", "k", `"own"`)
		b.PutText(`{"v":99,"id":"b","kind":"k"}`)
		b.PutText("resize image 7")
		for range 3 {
			b.runOne()
		}
		if diff := cmp.Diff([]string{`k "own"`, "plain resize image 7"}, ran); diff != "" {
			t.Errorf("runs (-want +got)\n%s", diff)
		}
		if poison := b.PoisonMessages(); len(poison) != 1 || poison[0].ID != "b" || b.MessagesLeft() != 0 {
			t.Errorf("poison messages = %+v with %d messages left, want the unreadable one", poison, b.MessagesLeft())
		}
	}, func(b *bench) { b.config.DefaultKind = "plain" })
}
