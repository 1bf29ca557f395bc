package fleets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

const (
	idleFor = 5 * time.Minute

	// idleSlack is how much later than after idleFor a worker may end: the last claims, and
	// the drain of a worker without jobs.
	idleSlack = 3 * time.Second
)

func exitWhenIdle(c *worker.Config) { c.ExitWhenIdle = idleFor }

// takes returns a kind whose jobs take so long.
func takes(d time.Duration) job.Kinds {
	return job.Kinds{"sleeps": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
		rig.SleepFor(ctx, d)
		return nil, ctx.Err()
	})}
}

// demandEnd checks that the worker ends idleFor after its last work, neither earlier nor much later.
func demandEnd(t *testing.T, p *rig.Process, lastWork time.Time) {
	t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(time.Until(lastWork.Add(idleFor + idleSlack))):
		t.Fatalf("worker still runs %s after its last work, want an end after %s", time.Since(lastWork), idleFor)
	}
	if idle := time.Since(lastWork); idle < idleFor {
		t.Errorf("worker ended %s after its last work, want %s", idle, idleFor)
	}
	if p.Position().State != lifecycle.Stopped {
		t.Errorf("state = %s, want stopped", p.Position().State)
	}
}

// demandRunning checks that the worker still runs after that time.
func demandRunning(t *testing.T, p *rig.Process, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	if rig.IsClosed(p.Ended) {
		t.Fatalf("worker ended within %s", after)
	}
}

// TestExitWhenIdle: a worker ends when it found nothing for the time, also on several queues,
// counted from its start, from the end of its last job, and from the last message that it
// found. The log and the last heartbeat report the end.
func TestExitWhenIdle(t *testing.T) {
	for name, change := range map[string]func(*worker.Config){"one queue": func(*worker.Config) {}, "two queues": rig.TakeFromBoth} {
		rig.Run(t, func(t *testing.T, b *rig.Bed) {
			const long = 12 * time.Minute
			p := b.Start("vm_0", takes(long), exitWhenIdle, change)
			demandRunning(t, p, 4*time.Minute)
			b.Put("a", "sleeps", "1")
			b.WaitDone("a", long+10*time.Second)
			demandRunning(t, p, 4*time.Minute)
			b.PutText("not an envelope") // goes to the poison queue
			put := time.Now()
			b.WaitFor("poison", 10*time.Second, func() bool { return len(b.PoisonMessages()) == 1 })
			demandEnd(t, p, put)
			if !p.Log.Contains("reason", "no job and no message for 5m0s") {
				t.Errorf("%s: the log does not report why the worker ended", name)
			}
			if h, ok, err := b.Workers.Read(t.Context(), p.Name()); err != nil || !ok || h.State != "stopped" || len(h.Jobs) > 0 {
				t.Errorf("%s: last heartbeat = %s with jobs %q (%v), want stopped without jobs", name, h.State, h.Jobs, err)
			}
		})
	}
}

// TestExitWhenIdleAtOnce: a worker that finds nothing at its start ends after the time, and
// without the setting it stays. A time shorter than a poll still takes one answer.
func TestExitWhenIdleAtOnce(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		stays := b.Start("vm_0", takes(0))
		short := b.Start("vm_1", takes(0), func(c *worker.Config) { c.ExitWhenIdle = time.Millisecond })
		begun := time.Now()
		p := b.Start("vm_2", takes(0), exitWhenIdle)
		demandEnd(t, p, begun)
		if !rig.IsClosed(short.Ended) {
			t.Error("worker with 1ms still runs")
		}
		demandRunning(t, stays, time.Hour)
	})
}

// TestExitWhenIdlePaused: a worker that starts paused stays, also if its first reading of the pause
// fails and its time is shorter than the time until the next.
func TestExitWhenIdlePaused(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		if _, err := b.Control.Edit(t.Context(), func(d *control.Document, now time.Time) (bool, error) {
			d.Pause = &control.Mark{At: now, By: "me"}
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if c.Container == b.Names.Control && time.Since(start) < 10*time.Second {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}
			}
			return storage.Fault{}
		})
		p := b.Start("vm_0", takes(0), func(c *worker.Config) { c.ExitWhenIdle = 3 * time.Second })
		demandRunning(t, p, time.Hour)
	})
}

// TestExitWhenIdleLastLook: a message that is put just before the time is over is found.
func TestExitWhenIdleLastLook(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		p := b.Start("vm_0", takes(time.Second), exitWhenIdle)
		b.WaitFor("process", time.Minute, func() bool { return p.Position().State == lifecycle.Process })
		time.Sleep(idleFor - 50*time.Millisecond)
		b.Put("late", "sleeps", "1")
		b.WaitDone("late", 10*time.Second)
		demandRunning(t, p, idleFor-5*time.Second)
	})
}

// TestNotIdle: a worker that cannot know whether there is work is not idle: claiming or its
// kind is paused, an operator holds it, storage fails or denies, its machine fails all jobs,
// or its VM will go. Afterwards the time begins again.
func TestNotIdle(t *testing.T) {
	proof.Only(t, "it simulates hours")
	const long = 4 * idleFor
	asks := func(change func(d *control.Document)) func(b *rig.Bed, p *rig.Process) {
		return func(b *rig.Bed, _ *rig.Process) {
			edit := func(d *control.Document, _ time.Time) (bool, error) { change(d); return true, nil }
			if _, err := b.Connect(b.Transport(recorder.Operator)).Control.Edit(b.T.Context(), edit); err != nil {
				b.T.Fatal(err)
			}
			time.Sleep(20 * time.Second) // until the worker has read it
		}
	}
	mark := control.Mark{By: "me"}
	fails := func(refused *storage.Error) func(b *rig.Bed, p *rig.Process) {
		return func(_ *rig.Bed, p *rig.Process) {
			p.Link.Mu.Lock()
			defer p.Link.Mu.Unlock()
			p.Link.FaultFor = func(int, *http.Request) rig.RequestFault {
				return rig.RequestFault{Lost: refused == nil, Refused: refused}
			}
		}
	}
	works := func(_ *rig.Bed, p *rig.Process) {
		p.Link.Mu.Lock()
		defer p.Link.Mu.Unlock()
		p.Link.FaultFor = nil
	}
	var event string
	for name, row := range map[string]struct {
		begin, end func(b *rig.Bed, p *rig.Process)
	}{
		"paused": {asks(func(d *control.Document) { d.Pause = &mark }), asks(func(d *control.Document) { d.Pause = nil })},
		"kind paused": {
			asks(func(d *control.Document) { d.PausedKinds = map[string]control.Mark{"sleeps": mark} }),
			asks(func(d *control.Document) { d.PausedKinds = nil }),
		},
		"held": {
			asks(func(d *control.Document) { d.DrainAll = &mark }),
			asks(func(d *control.Document) { d.DrainAll = nil }),
		},
		"unreachable": {fails(nil), works},
		"throttled":   {fails(&storage.Error{Status: 503, Code: "ServerBusy"}), works},
		"denied":      {fails(&storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}), works},
		"evicted": {
			func(b *rig.Bed, _ *rig.Process) { event = b.Announce("Redeploy", rig.In(2*time.Hour), rig.ByUser) },
			func(b *rig.Bed, _ *rig.Process) { b.Metadata.Withdraw(event) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				b.AddRecorder()
				p := b.Start("vm_0", takes(0), exitWhenIdle, func(c *worker.Config) { c.Acknowledge = events.AcknowledgeNever })
				demandRunning(t, p, time.Minute)
				row.begin(b, p)
				demandRunning(t, p, long)
				row.end(b, p)
				ended := time.Now()
				demandRunning(t, p, idleFor-time.Minute)
				select {
				case <-p.Ended:
				case <-time.After(3 * time.Minute):
					t.Errorf("worker still runs %s after the end of it, in %s", time.Since(ended), p.Position())
				}
			})
		})
	}
}

// needing is a handler whose states need a machine.
type needing struct {
	job.Handler
	machine string
	looks   *atomic.Int32 // at states that need another machine
}

func (n needing) Offer() string { return n.machine }

func (n needing) CheckNeeds(needs string) error {
	if needs == n.machine {
		return nil
	}
	n.looks.Add(1)
	return errors.New("it needs another machine")
}

// TestExitWhenIdleOnAnotherMachine: a job whose state needs another machine keeps no worker from ending, however often its
// message comes back, whether a live worker has the machine or none. A job that it can run does.
func TestExitWhenIdleOnAnotherMachine(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy %t", busy), func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				var looks atomic.Int32
				on := func(machine string) job.Kinds {
					return job.Kinds{"k": needing{job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
						j.Report(job.Progress{State: []byte("s"), Needs: machine})
						rig.SleepFor(ctx, time.Minute)
						return nil, ctx.Err()
					}), machine, &looks}}
				}
				b.Put("frozen", "k", "1")
				first := b.Start("vm_0", on("large"))
				time.Sleep(20 * time.Second)
				first.Stop()
				if r := b.Record("frozen"); r.StateNeeds != "large" {
					t.Fatalf("record = %+v, want the needs of its state", r)
				}
				if busy {
					p := presence.Presence{Worker: "vm_1", State: "process", Kinds: []string{"k"}, Offers: []string{"large"}}
					ctx, stop := context.WithCancel(t.Context())
					var beats sync.WaitGroup
					defer beats.Wait()
					defer stop()
					beats.Go(func() {
						for b.Workers.Write(context.Background(), p) == nil && ctx.Err() == nil {
							rig.SleepFor(ctx, presence.Every)
						}
					})
					time.Sleep(time.Second)
				}
				begun := time.Now()
				p := b.Start("vm_2", on("small"), exitWhenIdle)
				demandRunning(t, p, 3*time.Minute) // its message is hidden for less than the rest by now
				seen := looks.Load()
				if seen < 4 {
					t.Errorf("%d looks at the job in 3 minutes, want some", seen)
				}
				if !busy {
					b.Put("own", "k", "1")
					b.WaitDone("own", 2*time.Minute)
					begun = time.Now()
				}
				select {
				case <-p.Ended:
				case <-time.After(2 * idleFor):
					t.Fatalf("worker still runs %s after its last job, and %d looks at a job of another machine", time.Since(begun), looks.Load())
				}
				if idle := time.Since(begun); idle < idleFor-time.Second || looks.Load() <= seen {
					t.Errorf("worker ended after %s, %d looks before and %d after 3 minutes; want %s, and more looks", idle, seen, looks.Load(), idleFor)
				}
				if r := b.Record("frozen"); r.Status != checkpoint.Open || r.Generation != 1 || len(b.PoisonMessages()) > 0 {
					t.Errorf("record = %+v, want it open and not acquired again", r)
				}
			})
		})
	}
}

// TestExitWhenIdleLosesNothing: workers that end between the tries of a job, and while jobs
// run elsewhere, lose and poison none; a later worker finishes them.
func TestExitWhenIdleLosesNothing(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 8
		tries := 0
		kinds := takes(idleFor * 3)
		kinds["fails"] = job.HandlerFunc(func(_ context.Context, j *job.Job) ([]byte, error) {
			if tries++; tries <= 3 {
				return nil, errors.New("not yet")
			}
			return nil, nil
		})
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "sleeps", "1")
		}
		busy := b.Start("vm_0", kinds, func(c *worker.Config) { c.Concurrency = jobs })
		time.Sleep(10 * time.Second)
		b.Put("retried", "fails", "1")
		for n := 1; b.Record("retried").Status != checkpoint.Done; n++ {
			if n > 20 {
				t.Fatal("job that was retried is not done after 20 workers")
			}
			p := b.Start(fmt.Sprintf("vm_%d", n), kinds, func(c *worker.Config) { c.ExitWhenIdle = time.Second })
			<-p.Ended
			time.Sleep(time.Minute)
		}
		for i := range jobs {
			b.WaitDone(fmt.Sprintf("job-%d", i), idleFor*3)
		}
		if rig.IsClosed(busy.Ended) || len(b.PoisonMessages()) > 0 || b.MessagesLeft() > 0 {
			t.Errorf("poison messages %d, messages left %d, want none", len(b.PoisonMessages()), b.MessagesLeft())
		}
	})
}
