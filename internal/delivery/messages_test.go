package delivery_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/job"
)

// TestLateFirstDelivery: a first delivery that is stopped while it cannot renew its message, or loses it, leaves no record,
// and does not move, also if it was to move.
func TestLateFirstDelivery(t *testing.T) {
	for name, row := range map[string]struct {
		claimed bool // by another worker
		waited  bool // it was to move
		outcome string
	}{
		"stopped": {false, false, "ended released"}, "another has it": {true, false, "ended dropped"},
		"was to move, stopped": {false, true, "ended released"}, "was to move, another has it": {true, true, "ended dropped"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutDue("a", "k", 40*time.Minute, 30*time.Minute)
				lease := b.claim()
				time.Sleep(40 * time.Second)
				end := func() {}
				if row.claimed {
					b.claim()
				} else {
					end = b.down(func(c storage.Call) bool { return c.Operation == storage.OpUpdateMessage })
				}
				open := b.Open
				if row.waited {
					open = b.OpenWaiting
				}
				wait := b.run(open(lease))
				time.Sleep(5 * time.Second)
				b.drainNow(10 * time.Second)
				time.Sleep(2 * time.Second)
				end()
				wait()
				if n := b.counter.Of(row.outcome)[row.outcome]; n != 1 || b.Record("a").Status != "" || b.counter.WithPrefix("started") != 0 ||
					b.onDemand() != 0 || (b.visible() == 1) == row.claimed {
					t.Errorf("%s %d times, record %q, %d visible messages; want once, none, one if no other worker has it", row.outcome, n,
						b.Record("a").Status, b.visible())
				}
			}, func(b *bench) { b.config.Changeover = 10 * time.Minute })
		})
	}
}

// clear removes all messages, as an operator may.
func (b *bench) clear() {
	b.T.Helper()
	if _, err := b.Account(b.Server.Transport()).Queue(b.Names.Queue).ClearMessages(b.T.Context(), nil); err != nil {
		b.T.Fatal(err)
	}
}

// take makes the message of a lease another worker's.
func (b *bench) take(lease *queue.Lease) {
	b.T.Helper()
	if err := lease.Release(b.T.Context(), 0); err != nil {
		b.T.Fatal(err)
	}
	b.claim()
	time.Sleep(20 * time.Second) // the next renewal is refused
}

// TestStopAtTheLimit: a job that waits for a slot of its kind is released when the worker stops.
func TestStopAtTheLimit(t *testing.T) {
	run := job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) { return nil, sleeps(ctx, time.Hour) })
	onBench(t, job.Kinds{"k": job.WithLimits(run, job.Limits{Concurrency: 1})}, func(t *testing.T, b *bench) {
		wait := b.beginMany(2)
		time.Sleep(3 * time.Second)
		b.drainNow(10 * time.Second)
		if wait(); b.visible() != 2 || b.Counts() != (delivery.Counts{Released: 2}) || b.counter.WithPrefix("started") != 1 {
			t.Errorf("%d visible messages, %+v, %d starts; want both released, one started", b.visible(), b.Counts(),
				b.counter.WithPrefix("started"))
		}
	})
}

// TestDuplicates: a second message of a job waits for the end of the first for two seconds, and then is put back; a message of
// a job that is done is removed.
func TestDuplicates(t *testing.T) {
	runs := 0
	run := job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
		runs++
		j.Report(job.Progress{State: []byte("s")})
		return []byte("done"), sleeps(ctx, 30*time.Second)
	})
	onBench(t, job.Kinds{"k": run}, func(t *testing.T, b *bench) {
		b.Put("a", "k", "")
		first := b.begin(b.claim())
		time.Sleep(5 * time.Second)
		b.Put("a", "k", "")
		begun := time.Now()
		if got, took := b.runOne(), time.Since(begun); got != delivery.NotRun || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("the duplicate: %d after %s; want it put back after 2 s", got, took)
		}
		if first(); b.Record("a").Status != checkpoint.Done || runs != 1 {
			t.Errorf("record = %s after %d runs, want it done after one", b.Record("a").Status, runs)
		}
		took, deliveries := b.untilEnd(time.Hour, time.Second)
		if took > time.Minute || deliveries != 1 || runs != 1 || b.counter.Of("ended finished")["ended finished"] != 1 {
			t.Errorf("the duplicate is gone after %s, %d deliveries and %d runs; want one delivery and no run", took, deliveries, runs)
		}
		b.PutText(`{"v":1,"id":"a","kind":"other","payload":1}`)
		if b.runOne(); b.MessagesLeft() == 0 || len(b.PoisonMessages()) != 0 {
			t.Errorf("a message of a kind that no worker has is gone")
		}
	})
}

// timed is a Counter that keeps the times of its calls.
type timed struct {
	*rig.Counter
	calls []string
}

func (o *timed) keep(format string, values ...any) {
	o.calls = append(o.calls, fmt.Sprintf(format, values...))
}

func (o *timed) Observe(e observe.Event) {
	o.Counter.Observe(e)
	switch e := e.(type) {
	case observe.Waited:
		o.keep("waited %s after %s", e.For.Round(time.Second), e.After)
	case observe.Spent:
		o.keep("spent %s on %s, %s", e.Took.Round(time.Second), e.Kind, e.Effort)
	case observe.Committed:
		o.keep("committed %s after %s, ran %s, %d interruptions, %d exits", e.Kind, e.SincePut.Round(time.Second), e.Ran.Round(time.Second),
			e.Interruptions, e.Exits)
	}
}

// TestLifeOfAJob: observer and log get all of the life of a job that fails, is stopped, loses its worker, and is done.
func TestLifeOfAJob(t *testing.T) {
	var o *timed
	runs := 0
	kinds := handle(func(ctx context.Context, j *job.Job) ([]byte, error) { // the worker looks every 5 s
		switch runs++; runs {
		case 1:
			return nil, errors.Join(sleeps(ctx, 10*time.Second), errors.New("out of luck"))
		case 2:
			if err := sleeps(ctx, 22*time.Second); err != nil {
				return nil, err
			}
			j.Report(job.Progress{State: []byte("s"), Fraction: 0.25})
			return nil, sleeps(ctx, time.Hour)
		default:
			return []byte("done"), sleeps(ctx, 30*time.Second)
		}
	})
	onBench(t, kinds, func(t *testing.T, b *bench) {
		put := time.Now()
		b.Put("a", "k", "")
		time.Sleep(7 * time.Second)
		b.runOne()
		failed := time.Now()
		b.WaitFor("the message", time.Minute, func() bool { return b.visible() == 1 })
		afterFailure := time.Since(failed)
		wait := b.begin(b.claim())
		time.Sleep(time.Minute)
		b.drainNow(10 * time.Second)
		wait()
		b.restart()
		time.Sleep(9 * time.Second)
		b.loseWorker("a")
		time.Sleep(40 * time.Second)
		b.runOne()
		want := []string{
			"waited 7s after put", "spent 10s on k, failed", fmt.Sprintf("waited %s after failure", afterFailure.Round(time.Second)),
			"spent 25s on k, handed_over", "spent 35s on k, redone", "waited 40s after exit",
			fmt.Sprintf("committed k after %s, ran 1m40s, 1 interruptions, 1 exits", time.Since(put).Round(time.Second)),
			"spent 30s on k, committed",
		}
		if diff := cmp.Diff(want, o.calls); diff != "" {
			t.Errorf("calls of the observer (-want +got)\n%s", diff)
		}
		started := func(generation, attempt int, at float64) rig.Line {
			return rig.Line{"level": "INFO", "msg": "job started", "generation": float64(generation), "attempt": float64(attempt), "resumed_at": at,
				"enqueued_at": put.UTC().Format(time.RFC3339)}
		}
		lines := []rig.Line{
			started(1, 1, 0),
			{"level": "WARN", "msg": "job failed; it will be tried again", "error": "out of luck", "failures": 1.0, "failures_total": 1.0,
				"visible_in": float64(10 * time.Second)},
			started(2, 2, 0),
			{"level": "INFO", "msg": "job released", "reason": "stopped: drained: context canceled", "fraction": 0.25, "state_bytes": 1.0,
				"state_left_out": false, "work_lost": float64(35 * time.Second), "moved": false},
			started(4, 1, 0.25),
			{"level": "INFO", "msg": "job committed", "generation": 4.0, "interruptions": 1.0, "result_bytes": 4.0},
		}
		if diff := cmp.Diff(lines, b.jobLines("a", "k")); diff != "" {
			t.Errorf("lines of the log (-want +got)\n%s", diff)
		}
	}, func(b *bench) { o = &timed{Counter: b.counter}; b.config.Observe = o.Observe })
}

// jobLines returns the lines about a job, without details for developers. The names and the times of lines are left out.
func (b *bench) jobLines(id, kind string) (lines []rig.Line) {
	for _, line := range b.log.All() {
		if line["level"] == "DEBUG" || line["job_id"] != id || line["kind"] != kind || line["message_id"] == "" {
			continue
		}
		for _, key := range []string{"job_id", "kind", "message_id", "time"} {
			delete(line, key)
		}
		lines = append(lines, line)
	}
	return lines
}

// loseWorker makes another worker acquire the job's record, and die.
func (b *bench) loseWorker(id string) {
	b.T.Helper()
	found := b.Record(id)
	d := checkpoint.Delivery{ID: id, Kind: found.Kind, PayloadHash: found.PayloadHash, MessageID: found.MessageID}
	if _, err := b.Records.Acquire(b.T.Context(), d, found, "vm_1-boot-1"); err != nil {
		b.T.Fatal(err)
	}
}

// restart makes contexts for work after a drain.
func (b *bench) restart() {
	ctx, stop := context.WithCancelCause(context.Background())
	b.ctx, b.stop, b.cleanup = ctx, stop, context.WithoutCancel(ctx)
}

// TestPayloadThatIsTooLarge: a message that names a payload larger than any worker takes is poison at once, and waits for no
// memory. So is the largest payload, if its blob is gone.
func TestPayloadThatIsTooLarge(t *testing.T) {
	for name, row := range map[string]struct {
		size   int
		reason string // a part of it
	}{
		"one byte too many": {queue.MaxPayload + 1, fmt.Sprint("it has ", queue.MaxPayload+1, " bytes")},
		"the largest":       {queue.MaxPayload, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				const size = 100 << 10
				b.PutLarge("a", "k", make([]byte, size))
				lease := b.claim()
				text, err := base64.StdEncoding.DecodeString(b.Server.Messages(b.Names.Queue)[0].Text)
				if err == nil {
					err = lease.Complete(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				b.PutText(strings.Replace(string(text), fmt.Sprint(size), fmt.Sprint(row.size), 1))
				b.fail(http.StatusNotFound, "BlobNotFound", on(b.Names.Payloads, storage.OpGetBlob))
				begun := time.Now()
				b.runOne()
				found := b.PoisonMessages()
				if len(found) != 1 || !strings.Contains(found[0].Reason, row.reason) || time.Since(begun) > time.Second {
					t.Errorf("poison = %+v after %s, want one at once, because %q", found, time.Since(begun), row.reason)
				}
				if n := b.counter.WithPrefix("started"); n != 0 || b.lines("job waits for memory: the payloads of other jobs take all of it "+
					"(--payload-memory)") != 0 {
					t.Errorf("%d starts, or a line about memory; want none", n)
				}
			}, func(b *bench) { b.config.PayloadMemory = queue.MaxPayload })
		})
	}
}

// TestMessageLostBeforeTheStart: a job whose message is lost while it waits for storage is left to the worker that has the message. If
// this delivery has acquired the record, it releases it, and if the message was removed, it puts a new one.
func TestMessageLostBeforeTheStart(t *testing.T) {
	take := func(b *bench, lease *queue.Lease) { b.take(lease) }
	remove := func(b *bench, _ *queue.Lease) { b.clear(); time.Sleep(20 * time.Second) }
	for name, row := range map[string]struct {
		acquired bool
		lose     func(b *bench, lease *queue.Lease)
		outcome  string
		visible  int
	}{
		"another worker has it":           {false, take, "ended dropped", 0},
		"another worker has it, acquired": {true, take, "ended released", 0},
		"removed":                         {false, remove, "ended released", 1},
		"removed, acquired":               {true, remove, "ended released", 1},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, job.Kinds{"k": rig.Echo}, func(t *testing.T, b *bench) {
				b.PutLarge("a", "k", make([]byte, 100<<10))
				if err := b.claim().Release(t.Context(), 0); err != nil { // so that the next delivery reads the record
					t.Fatal(err)
				}
				lease := b.claim()
				end := b.down(func(c storage.Call) bool {
					if row.acquired {
						return on(b.Names.Payloads, storage.OpGetBlob)(c)
					}
					return on(b.Names.Records, storage.OpGetBlobProperties)(c)
				})
				wait := b.begin(lease)
				time.Sleep(5 * time.Second)
				row.lose(b, lease)
				wait()
				end()
				status := checkpoint.Status("")
				if row.acquired {
					status = checkpoint.Open
				}
				if n := b.counter.Of(row.outcome)[row.outcome]; n != 1 || b.Record("a").Status != status || b.counter.WithPrefix("started") != 0 {
					t.Errorf("%s %d times, record %q, %d starts; want once, %q, none", row.outcome, n, b.Record("a").Status,
						b.counter.WithPrefix("started"), status)
				}
				if b.MessagesLeft() != 1 || b.visible() != row.visible {
					t.Errorf("%d messages, %d visible; want one, %d", b.MessagesLeft(), b.visible(), row.visible)
				}
			})
		})
	}
}
