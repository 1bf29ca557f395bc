package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/test/worker/rig"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// TestShortLogCostsNothing: the log of a short job is in its record, and costs no call.
func TestShortLogCostsNothing(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Put("a", "says", "")
		p := b.Start("vm_0", job.Kinds{"says": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			job.Logger(ctx).DebugContext(ctx, "not kept")
			job.Logger(ctx).With("shard", 7).WithGroup("in").WarnContext(ctx, "slow\nread", "msg", "it", "bytes", 12)
			job.Print(ctx, joblog.Stderr, []byte("50% \xff\x1b[31m done\r\n"))
			return nil, nil
		})})
		b.WaitDone("a", time.Minute)
		synctest.Wait()
		want := []string{"slow\nread shard=7 in.msg=it in.bytes=12", "50% \xff\x1b[31m done"}
		d := b.LogOf(b.Record("a"))
		if got := rig.Texts(d); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("log = %q, want %q", got, want)
		}
		if s := d.Sections[0]; s.Worker != "vm_0-11112222-0" || s.Generation != 1 {
			t.Errorf("section = %+v, want that of the worker and the first delivery", s)
		}
		if source, _, _ := d.Sections[0].Lines[0].Decode(); source != "warn" {
			t.Errorf("source = %q, want the level", source)
		}
		if blobs := b.Server.Blobs(b.Names.Payloads); len(blobs) != 0 {
			t.Errorf("blobs beside the record = %v, want none", blobs)
		}
		if got := p.Log.Find("slow\nread"); len(got) != 1 || got[0]["generation"] != 1.0 {
			t.Errorf("lines in the worker's log = %v, want it there too", got)
		}
	})
}

// TestLogSurvivesTheVM: after a VM has died the log has the lines up to its last
// checkpoint, and then the next delivery's; and lines left out by a write are counted.
func TestLogSurvivesTheVM(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Printing{Steps: &rig.Steps{N: 40, Each: 500 * time.Millisecond}}
		kinds := job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(53 * time.Millisecond): // never at the moment at which the job ends
						job.Print(ctx, joblog.Stdout, rig.LogLineOf(j.ID, n))
					}
				}
			}()
			return work.Run(ctx, j)
		})}
		b.Put("long", "prints", "")
		first := b.Start("vm_0", kinds, func(c *worker.Config) { c.LogSize = joblog.MinSize })
		time.Sleep(12 * time.Second)
		synctest.Wait()
		before := b.LogOf(b.Record("long"))
		if len(before.Sections) != 1 || before.Sections[0].Count < 150 {
			t.Fatalf("log of a running job = %d lines, want those up to the checkpoint at 10 s", before.Sections[0].Count)
		}
		first.Kill()
		b.Start("vm_1", kinds, func(c *worker.Config) { c.LogSize = joblog.MinSize })
		b.WaitDone("long", 5*time.Minute)
		synctest.Wait()
		r := b.Record("long")
		d := b.LogOf(r)
		if len(d.Sections) != 2 || d.Sections[0].Worker != "vm_0-11112222-0" || d.Sections[1].Worker != "vm_1-11112222-0" {
			t.Fatalf("log = %+v, want a section of each worker", d.Sections)
		}
		if s := d.Sections[0]; s.Count != before.Sections[0].Count || len(s.Lines) == 0 || s.Lines[len(s.Lines)-1].Number != s.Count {
			t.Errorf("the first delivery has %d lines, %d of them kept, want the last of %d", s.Count, len(s.Lines), before.Sections[0].Count)
		}
		blobs := b.Server.Blobs(b.Names.Payloads)
		if len(blobs) != 2 {
			t.Errorf("blobs = %v, want one for each delivery", blobs)
		}
		for _, blob := range blobs {
			_, body, _ := b.Server.ReadBlob(b.Names.Payloads, blob.Name)
			if len(body) > joblog.MinSize+2*joblog.MaxTail || len(body) < joblog.MinSize*3/4 {
				t.Errorf("the blob %s has %d bytes, want close to the %d that are kept", blob.Name, len(body), joblog.MinSize)
			}
		}
		b.CheckLog(t, r)
		b.Recorder.Check(t)
	})
}

// TestLogOfACancelledJob: the lines that a job printed after its last checkpoint, and
// when it was stopped, are kept although an operator wrote its record last. A job that
// printed nothing costs no call for that.
func TestLogOfACancelledJob(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.Start("vm_0", job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if j.ID != "silent" {
				job.Print(ctx, joblog.Stdout, []byte(j.ID+" began"))
			}
			<-ctx.Done()
			if j.ID != "silent" {
				job.Print(ctx, joblog.Stderr, rig.LastLineOf(j.ID))
			}
			return nil, context.Cause(ctx)
		})})
		b.Put("prints", "prints", "")
		b.Put("silent", "prints", "")
		time.Sleep(15 * time.Second) // both have a record
		b.CancelJobs("prints", "silent")
		b.WaitFor("no message left", time.Minute, func() bool { return b.MessagesLeft() == 0 })
		synctest.Wait()
		r := b.Record("prints")
		if got := rig.Texts(b.LogOf(r)); r.Status != checkpoint.Cancelled || len(got) != 2 || got[1] != string(rig.LastLineOf("prints")) {
			t.Errorf("record = %s, log = %q, want a cancelled job with its two lines", r.Status, got)
		}
		for _, blob := range b.Server.Blobs(b.Names.Payloads) {
			if id, _, isLog := joblog.Owner(blob.Name); isLog && id == "silent" {
				t.Error("a job that printed nothing has a blob for its log")
			}
		}
	})
}

// TestLogIsSwitchedOff: a worker without a place for logs keeps none, and leaves what
// others kept.
func TestLogIsSwitchedOff(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		attempts := 0
		kinds := job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			attempts++
			job.Print(ctx, joblog.Stdout, fmt.Appendf(nil, "%s attempt %d", j.ID, attempts))
			if attempts == 1 {
				return nil, errors.New("once")
			}
			return nil, nil
		})}
		b.Put("a", "prints", "")
		first := b.Start("vm_0", kinds)
		b.WaitFor("a failure", time.Minute, func() bool { return b.Record("a").Failures == 1 })
		first.Stop()
		b.Start("vm_1", kinds, func(c *worker.Config) { c.Stores.Logs = nil })
		b.WaitDone("a", time.Minute)
		if got := rig.Texts(b.LogOf(b.Record("a"))); len(got) != 1 || got[0] != "a attempt 1" {
			t.Errorf("log = %q, want that of the first delivery alone", got)
		}
	})
}

// TestStaleOwnerKeepsItsLinesToItself: a worker that was frozen while its log was on the
// way removes no line of its successor.
func TestStaleOwnerKeepsItsLinesToItself(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		b.AddRecorder()
		work := &rig.Printing{Steps: &rig.Steps{N: 60, Each: time.Second}}
		b.Put("long", "prints", "")
		frozen := make(chan func(), 1)
		var once atomic.Bool
		b.StartWithLink("vm_0", job.Kinds{"prints": work}, func(l *rig.Link) {
			l.FaultFor = func(_ int, r *http.Request) rig.RequestFault {
				if strings.Contains(r.URL.Path, joblog.Prefix) && r.Method == http.MethodPut && once.CompareAndSwap(false, true) {
					go func() { frozen <- l.Hold() }()
					return rig.RequestFault{Before: time.Millisecond}
				}
				return rig.RequestFault{}
			}
		})
		thaw := <-frozen
		b.Start("vm_1", job.Kinds{"prints": &rig.Printing{Steps: &rig.Steps{N: 60, Each: time.Second}}})
		b.WaitFor("the log of the second worker", 5*time.Minute, func() bool {
			d := b.LogOf(b.Record("long"))
			return len(d.Sections) > 0 && d.Sections[len(d.Sections)-1].Generation == 2 && len(b.Server.Blobs(b.Names.Payloads)) > 0
		})
		thaw()
		b.WaitDone("long", 10*time.Minute)
		synctest.Wait()
		b.CheckLog(t, b.Record("long"))
		b.Recorder.Check(t)
	})
}

// TestDrainLosesLogsFirst: in a drain no log is sent before all jobs are released, and
// with a storage that does not take logs all states are saved nevertheless.
func TestDrainLosesLogsFirst(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		const jobs = 40
		work := &rig.Printing{Steps: &rig.Steps{N: 600, Each: time.Second}}
		for i := range jobs {
			b.Put(fmt.Sprintf("job-%d", i), "prints", "")
		}
		var mu sync.Mutex // guards the next two
		logs, early := 0, 0
		p := b.Start("vm_0", job.Kinds{"prints": work}, func(c *worker.Config) { c.Concurrency = jobs })
		time.Sleep(7*time.Second + 500*time.Millisecond)
		b.Server.OnCall(func(c storage.Call) storage.Fault {
			if strings.HasPrefix(c.Blob, joblog.Prefix) && c.Operation == storage.OpPutBlob {
				mu.Lock()
				defer mu.Unlock()
				logs++
				if b.OpenRecords() < jobs {
					early++
				}
				return storage.Fault{Before: time.Hour}
			}
			return storage.Fault{Before: 50 * time.Millisecond}
		})
		if _, err := b.Metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.WaitFor("the end of the drain", time.Minute, func() bool { return len(p.Log.Find("drained")) > 0 })
		line := p.Log.Find("drained")[0]
		if took := time.Duration(line["since_notice"].(float64)); line["released"] != float64(jobs) || line["states_left_out"] != 0.0 ||
			took > 3*time.Second {
			t.Errorf("drained = %v after %s, want %d released with their states within 3s", line, took, jobs)
		}
		mu.Lock()
		defer mu.Unlock()
		if logs == 0 || early > 0 {
			t.Errorf("logs sent = %d, of which %d before all jobs were released, want some and none", logs, early)
		}
	})
}

// TestLogOfAnotherJobOfThatID: a job whose id was used before, and whose record is gone,
// begins a log of its own.
func TestLogOfAnotherJobOfThatID(t *testing.T) {
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		kinds := job.Kinds{"prints": &rig.Printing{Steps: &rig.Steps{N: 1, Each: time.Second}}}
		for range 2 {
			b.Put("a", "prints", "")
			p := b.Start("vm_0", kinds)
			b.WaitDone("a", time.Minute)
			p.Stop()
			if d := b.LogOf(b.Record("a")); len(d.Sections) != 1 || d.Sections[0].Count != 6 || len(d.Sections[0].Lines) != 6 {
				t.Fatalf("log = %.200q in %d sections, want the 6 lines of one delivery", rig.Texts(d), len(d.Sections))
			}
			if _, err := b.Account(b.Server.Transport()).Container(b.Names.Records).NewBlobClient(b.BlobOf("a")).Delete(t.Context(),
				nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}
