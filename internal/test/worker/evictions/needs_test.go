package evictions

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// frozen is a handler whose states can be used on a machine that offers its name alone, as
// snapshots of programs.
type frozen struct {
	machine string
	library string // differs without another offer
	rest    time.Duration
	checked atomic.Int32 // states that did not fit
	ran     atomic.Int32
}

func (f *frozen) Offer() string { return f.machine }

func (f *frozen) needs() string { return f.machine + " machine=" + f.machine + " | " + f.library }

func (f *frozen) meets(needs string) bool {
	_, library, _ := strings.Cut(needs, " | ")
	return presence.OfferMeets(f.machine, needs) && library == f.library
}

func (f *frozen) CheckNeeds(needs string) error {
	if f.meets(needs) {
		return nil
	}
	f.checked.Add(1)
	return errors.New("the machine was another one")
}

func (f *frozen) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	if state, _, ok := j.Saved(); ok && !f.meets(string(state)) {
		return nil, errors.New("a foreign state was fetched")
	}
	f.ran.Add(1)
	j.Report(job.Progress{State: []byte(f.needs()), Needs: f.needs()})
	select {
	case <-time.After(f.rest):
		return []byte(f.machine), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reads counts the reads of records with their states through a worker's link.
func reads(b *rig.Bed, id string, n *atomic.Int32) func(*rig.Link) {
	return func(l *rig.Link) {
		next := l.Next
		l.Next = transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, b.BlobOf(id)) && r.URL.Query().Get("comp") == "" {
				n.Add(1)
			}
			return next.Do(r)
		})
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

// handedOver puts a job and runs it on a machine until that is stopped.
func handedOver(b *rig.Bed, f *frozen) {
	b.T.Helper()
	b.Put("job", "a", "")
	first := b.Start("first", job.Kinds{"a": f})
	b.WaitFor("it runs", time.Minute, func() bool { return f.ran.Load() > 0 })
	first.Stop()
	if r := b.Record("job"); r.StateNeeds != f.needs() || r.Status != checkpoint.Open {
		b.T.Fatalf("the record = %+v, want the needs of the machine", r)
	}
}

// TestNeedsAreLeftToAMatch: a worker that does not meet the needs of a state leaves the job
// to one that does, soon, and fetches no state.
func TestNeedsAreLeftToAMatch(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handedOver(b, &frozen{machine: "old", rest: time.Hour})
		var fetched atomic.Int32
		other, same := &frozen{machine: "new"}, &frozen{machine: "old"}
		b.StartWithLink("other", job.Kinds{"a": other}, reads(b, "job", &fetched))
		b.WaitFor("the other one looks at it", time.Minute, func() bool { return other.checked.Load() > 0 })
		b.Start("same", job.Kinds{"a": same})
		b.WaitDone("job", 3*time.Minute)
		if other.ran.Load() > 0 || same.ran.Load() != 1 || fetched.Load() > 0 || other.checked.Load() > 20 { // who claims it next is chance
			t.Errorf("runs = %d and %d, %d reads of the state, %d checks, want the worker that matches", other.ran.Load(), same.ran.Load(),
				fetched.Load(), other.checked.Load())
		}
		if r := b.Record("job"); r.Interruptions != 1 || r.FailuresTotal != 0 || r.Generation != 2 || r.StateNeeds != "" {
			t.Errorf("record = %+v, want that of a job that was handed over once", r)
		}
	})
}

// TestNeedsOfFeatures: a job whose state needs some features of a processor continues at once on a worker with more of them. With
// fewer it waits, and is reported once no other worker has them.
func TestNeedsOfFeatures(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handedOver(b, &frozen{machine: "old+Aw", rest: time.Hour})
		less, more := &frozen{machine: "old+AQ"}, &frozen{machine: "old+Bw", rest: time.Hour}
		b.Start("less", job.Kinds{"a": less})
		b.WaitFor("it looks at the job", time.Minute, func() bool { return less.checked.Load() > 0 })
		second := b.Start("more", job.Kinds{"a": more})
		b.WaitFor("the job continues", 30*time.Second, func() bool { return more.ran.Load() > 0 })
		b.WaitFor("it is reported no longer", 2*time.Minute, func() bool { return len(unlike(t, b)) == 0 })
		second.Stop()
		b.WaitFor("the job is reported", 2*time.Minute, func() bool { return len(unlike(t, b)) > 0 })
		if r := b.Record("job"); less.ran.Load() > 0 || r.Status != checkpoint.Open || r.StateNeeds != more.needs() {
			t.Errorf("%d runs without the features, record %+v", less.ran.Load(), r)
		}
	})
}

// TestNeedsWhileTheMatchIsBusy: while a live worker matches, a job is deferred for a second each,
// and after half a minute more and more rarely, and is neither reported nor dead-lettered, however long it has waited. A worker that
// announces nothing, as of an older version, may match too.
func TestNeedsWhileTheMatchIsBusy(t *testing.T) {
	for name, offers := range map[string][]string{"busy": {"young", "old"}, "of an older version": nil} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				handedOver(b, &frozen{machine: "old", rest: time.Hour})
				time.Sleep(25 * time.Hour)
				other := &frozen{machine: "new"}
				for i := range 160 { // 40 minutes
					busy := presence.Presence{Worker: "busy", State: "process", Kinds: []string{"a"}, Offers: offers}
					if err := b.Workers.Write(t.Context(), busy); err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						b.Start("other", job.Kinds{"a": other}, quiet)
					}
					time.Sleep(presence.Every)
					if n := other.checked.Load(); i == 0 && name == "busy" && n < 6 {
						t.Errorf("%d checks in %s, want one each second at first", n, presence.Every)
					}
				}
				if n := other.checked.Load(); n < 20 || n > 60 {
					t.Errorf("%d checks in 40 minutes", n)
				}
				if r := b.Record("job"); r.Status != checkpoint.Open || len(unlike(t, b)) > 0 {
					t.Errorf("record = %+v, reported: %q", r, unlike(t, b))
				}
			})
		})
	}
}

func unlike(t *testing.T, b *rig.Bed) []string {
	t.Helper()
	all, err := b.Workers.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, p := range all {
		if p.State != "process" {
			continue // it has stopped
		}
		for _, k := range p.Findings.Unlike {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// TestNeedsWithoutAMatch: without a worker that matches the job waits, reported and looked at
// more and more rarely, and is dead-lettered with its state after a day. A replay waits for a
// worker that matches; one from scratch needs none.
func TestNeedsWithoutAMatch(t *testing.T) {
	proof.Only(t, "it simulates a day")
	for name, here := range map[string]*frozen{"another machine": {machine: "new"}, "another library": {machine: "old", library: "x"}} {
		t.Run(name, func(t *testing.T) {
			rig.Run(t, func(t *testing.T, b *rig.Bed) {
				was := &frozen{machine: "old", rest: time.Hour}
				handedOver(b, was)
				first := b.Start("vm_1", job.Kinds{"a": here}, quiet)
				b.WaitFor("it is reported", 2*time.Minute, func() bool { return len(unlike(t, b)) > 0 })
				time.Sleep(40 * time.Minute)
				if n := here.checked.Load(); n < 8 || n > 20 {
					t.Errorf("%d checks in the first 40 minutes, want some", n)
				}
				first.Stop()
				time.Sleep(24 * time.Hour)
				b.Start("vm_2", job.Kinds{"a": here}, quiet)
				time.Sleep(10 * time.Minute)
				if r := b.Record("job"); r.Status != checkpoint.Open {
					t.Fatalf("record = %+v, want an open one: other workers may start", r)
				}
				b.WaitFor("it is dead-lettered", 20*time.Minute, func() bool { return len(b.PoisonMessages()) == 1 })
				if r := b.Record("job"); r.StateNeeds != was.needs() || !strings.Contains(r.Reason, "the machine was another one") ||
					!strings.Contains(r.Reason, "--from-scratch") {
					t.Errorf("record = %+v, want the needs and the reason", r)
				}
				if b.Replay(here.library == "", "job"); here.library != "" {
					time.Sleep(30 * time.Minute)
					if r := b.Record("job"); r.Status != checkpoint.Open {
						t.Errorf("record of a replayed job = %+v, want an open one", r)
					}
					b.Start("vm_3", job.Kinds{"a": &frozen{machine: "old"}}, quiet)
				}
				// Both workers ask for the message when it is visible, every few minutes, until chance gives it to the third one.
				b.WaitFor("it is done, and reported no longer", 6*time.Hour, func() bool {
					return b.Record("job").Status == checkpoint.Done && len(unlike(t, b)) == 0
				})
			})
		})
	}
}

// TestNeedsOfACancelledJob: a cancel ends a job that waits for another machine.
func TestNeedsOfACancelledJob(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		handedOver(b, &frozen{machine: "old", rest: time.Hour})
		b.Start("other", job.Kinds{"a": &frozen{machine: "new"}})
		time.Sleep(10 * time.Minute)
		b.CancelJobs("job")
		b.WaitFor("its message is gone", 10*time.Minute, func() bool { return b.MessagesLeft() == 0 })
		if r := b.Record("job"); r.Status != checkpoint.Cancelled {
			t.Errorf("record = %+v, want a cancelled one", r)
		}
	})
}

// quiet saves the metadata service's polls of long waits.
func quiet(c *worker.Config) { c.Metadata = nil }
