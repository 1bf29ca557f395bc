package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spotworker/spotworker/internal/checkpoint"
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
