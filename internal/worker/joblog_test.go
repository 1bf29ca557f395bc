package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/emulator/storage"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/job"
)

// printing is steps with a line of 300 bytes for each step, of which four do not fit into
// a record.
type printing struct{ *steps }

func (p *printing) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	next := 0
	if state, _, ok := j.Saved(); ok {
		next = int(binary.BigEndian.Uint32(state))
	}
	for i := range 4 {
		job.Print(ctx, joblog.Stdout, logLineOf(j.ID, -i))
	}
	result, err := p.runFrom(ctx, j, next, func(n int) job.Progress {
		job.Print(ctx, joblog.Stdout, logLineOf(j.ID, n))
		return job.Progress{State: binary.BigEndian.AppendUint32(nil, uint32(n))}
	})
	if err == nil {
		job.Print(ctx, joblog.Stdout, lastLineOf(j.ID))
	}
	return result, err
}

// logLineOf returns the line of a step of a job.
func logLineOf(id string, step int) []byte {
	return fmt.Appendf(nil, "%s step %d %s", id, step, strings.Repeat("x", 280))
}

// lastLineOf returns the last line of a job that prints.
func lastLineOf(id string) []byte { return []byte(id + " has printed its last line") }

// logOf returns what is kept of a job's log, in record and blob together.
func (b *testbed) logOf(r checkpoint.Record) joblog.Document {
	b.t.Helper()
	stored, err := b.logs.Read(b.t.Context(), r.ID, r.CreatedAt)
	if err != nil {
		b.t.Fatal(err)
	}
	return joblog.Merge(stored, joblog.Parse([]byte(r.Log)))
}

// texts returns the texts of a document's lines.
func texts(d joblog.Document) (all []string) {
	for _, s := range d.Sections {
		for _, l := range s.Lines {
			_, _, text := l.Decode()
			all = append(all, text)
		}
	}
	return all
}

// checkLog checks that a job's log has lines of no other job, and that it ends with the
// last line of a job that printed and is done: the record has that, whatever happened to
// the blob.
func (b *testbed) checkLog(t *testing.T, r checkpoint.Record) {
	t.Helper()
	d := b.logOf(r)
	lines := texts(d)
	for _, line := range lines {
		if !strings.HasPrefix(line, r.ID+" ") {
			t.Errorf("log of job %s has the line %.80q", r.ID, line)
		}
	}
	for _, s := range d.Sections {
		if s.Generation > r.Generation {
			t.Errorf("log of job %s has a delivery %d, and the record %d", r.ID, s.Generation, r.Generation)
		}
	}
	if r.Kind == "prints" && r.Status == checkpoint.Done && (len(lines) == 0 || lines[len(lines)-1] != string(lastLineOf(r.ID))) {
		t.Errorf("log of job %s ends with %.80q, want its last line", r.ID, lines)
	}
}

// TestShortLogCostsNothing: the log of a short job is in its record, and costs no call.
func TestShortLogCostsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.put("a", "says", "")
		p := b.start("vm_0", job.Kinds{"says": job.HandlerFunc(func(ctx context.Context, _ *job.Job) ([]byte, error) {
			job.Logger(ctx).DebugContext(ctx, "not kept")
			job.Logger(ctx).With("shard", 7).WithGroup("in").WarnContext(ctx, "slow\nread", "msg", "it", "bytes", 12)
			job.Print(ctx, joblog.Stderr, []byte("50% \xff\x1b[31m done\r\n"))
			return nil, nil
		})})
		b.waitDone("a", time.Minute)
		synctest.Wait()
		want := []string{"slow\nread shard=7 in.msg=it in.bytes=12", "50% \xff\x1b[31m done"}
		d := b.logOf(b.record("a"))
		if got := texts(d); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("log = %q, want %q", got, want)
		}
		if s := d.Sections[0]; s.Worker != "vm_0-11112222-0" || s.Generation != 1 {
			t.Errorf("section = %+v, want that of the worker and the first delivery", s)
		}
		if source, _, _ := d.Sections[0].Lines[0].Decode(); source != "warn" {
			t.Errorf("source = %q, want the level", source)
		}
		if blobs := b.server.Blobs(b.names.Payloads); len(blobs) != 0 {
			t.Errorf("blobs beside the record = %v, want none", blobs)
		}
		if got := p.log.find("slow\nread"); len(got) != 1 || got[0]["generation"] != 1.0 {
			t.Errorf("lines in the worker's log = %v, want it there too", got)
		}
	})
}

// TestLogSurvivesTheVM: after a VM has died the log has the lines up to its last
// checkpoint, and then those of the next delivery; and what a write left out is counted.
func TestLogSurvivesTheVM(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &printing{&steps{n: 40, each: 500 * time.Millisecond}}
		kinds := job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(53 * time.Millisecond): // never at the moment at which the job ends
						job.Print(ctx, joblog.Stdout, logLineOf(j.ID, n))
					}
				}
			}()
			return work.Run(ctx, j)
		})}
		b.put("long", "prints", "")
		first := b.start("vm_0", kinds, func(c *Config) { c.LogSize = joblog.MinSize })
		time.Sleep(12 * time.Second)
		synctest.Wait()
		before := b.logOf(b.record("long"))
		if len(before.Sections) != 1 || before.Sections[0].Count < 150 {
			t.Fatalf("log of a running job = %d lines, want those up to the checkpoint at 10 s", before.Sections[0].Count)
		}
		first.kill()
		b.start("vm_1", kinds, func(c *Config) { c.LogSize = joblog.MinSize })
		b.waitDone("long", 5*time.Minute)
		synctest.Wait()
		r := b.record("long")
		d := b.logOf(r)
		if len(d.Sections) != 2 || d.Sections[0].Worker != "vm_0-11112222-0" || d.Sections[1].Worker != "vm_1-11112222-0" {
			t.Fatalf("log = %+v, want a section of each worker", d.Sections)
		}
		if s := d.Sections[0]; s.Count != before.Sections[0].Count || len(s.Lines) == 0 || s.Lines[len(s.Lines)-1].Number != s.Count {
			t.Errorf("the first delivery has %d lines, %d of them kept, want the last of %d", s.Count, len(s.Lines), before.Sections[0].Count)
		}
		_, body, _ := b.server.ReadBlob(b.names.Payloads, joblog.Prefix+b.blobOf("long"))
		if len(body) > joblog.MinSize || len(body) < joblog.MinSize*3/4 {
			t.Errorf("the blob has %d bytes, want close to the %d that are kept", len(body), joblog.MinSize)
		}
		b.checkLog(t, r)
		b.recorder.check(t)
	})
}

// TestLogOfACancelledJob: what a job printed after its last checkpoint, and when it was
// stopped, is kept although an operator wrote its record last. A job that printed nothing
// costs no call for that.
func TestLogOfACancelledJob(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.start("vm_0", job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			if j.ID != "silent" {
				job.Print(ctx, joblog.Stdout, []byte(j.ID+" began"))
			}
			<-ctx.Done()
			if j.ID != "silent" {
				job.Print(ctx, joblog.Stderr, lastLineOf(j.ID))
			}
			return nil, context.Cause(ctx)
		})})
		b.put("prints", "prints", "")
		b.put("silent", "prints", "")
		time.Sleep(15 * time.Second) // both have a record
		b.cancelJobs("prints", "silent")
		b.waitFor("no message left", time.Minute, func() bool { return b.messagesLeft() == 0 })
		synctest.Wait()
		r := b.record("prints")
		if got := texts(b.logOf(r)); r.Status != checkpoint.Cancelled || len(got) != 2 || got[1] != string(lastLineOf("prints")) {
			t.Errorf("record = %s, log = %q, want a cancelled job with its two lines", r.Status, got)
		}
		if _, _, stored := b.server.ReadBlob(b.names.Payloads, joblog.Prefix+b.blobOf("silent")); stored {
			t.Error("a job that printed nothing has a blob for its log")
		}
	})
}

// blobOf returns the name of a job's record.
func (b *testbed) blobOf(id string) string {
	for _, server := range b.servers() {
		for _, blob := range server.Blobs(b.names.Records) {
			if strings.HasSuffix(blob.Name, "/"+id) {
				return blob.Name
			}
		}
	}
	return ""
}

// TestLogIsSwitchedOff: a worker without a place for logs keeps none, and leaves what
// others kept.
func TestLogIsSwitchedOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		attempts := 0
		kinds := job.Kinds{"prints": job.HandlerFunc(func(ctx context.Context, j *job.Job) ([]byte, error) {
			attempts++
			job.Print(ctx, joblog.Stdout, fmt.Appendf(nil, "%s attempt %d", j.ID, attempts))
			if attempts == 1 {
				return nil, errors.New("once")
			}
			return nil, nil
		})}
		b.put("a", "prints", "")
		first := b.start("vm_0", kinds)
		b.waitFor("a failure", time.Minute, func() bool { return b.record("a").Failures == 1 })
		first.stop()
		b.start("vm_1", kinds, func(c *Config) { c.Logs = nil })
		b.waitDone("a", time.Minute)
		if got := texts(b.logOf(b.record("a"))); len(got) != 1 || got[0] != "a attempt 1" {
			t.Errorf("log = %q, want that of the first delivery alone", got)
		}
	})
}

// TestStaleOwnerKeepsItsLinesToItself: a worker that was frozen while its log was on the
// way removes no line of its successor.
func TestStaleOwnerKeepsItsLinesToItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		b.addRecorder()
		work := &printing{&steps{n: 60, each: time.Second}}
		b.put("long", "prints", "")
		frozen := make(chan func(), 1)
		b.startWithLink("vm_0", job.Kinds{"prints": work}, func(l *link) {
			l.faultFor = func(_ int, r *http.Request) requestFault {
				if strings.Contains(r.URL.Path, joblog.Prefix) && r.Method == http.MethodPut && len(frozen) == 0 {
					go func() { frozen <- l.hold() }()
					return requestFault{before: time.Millisecond}
				}
				return requestFault{}
			}
		})
		thaw := <-frozen
		b.start("vm_1", job.Kinds{"prints": &printing{&steps{n: 60, each: time.Second}}})
		b.waitFor("the log of the second worker", 5*time.Minute, func() bool {
			d := b.logOf(b.record("long"))
			return len(d.Sections) > 0 && d.Sections[len(d.Sections)-1].Generation == 2 && len(b.server.Blobs(b.names.Payloads)) == 1
		})
		thaw()
		b.waitDone("long", 10*time.Minute)
		synctest.Wait()
		b.checkLog(t, b.record("long"))
		b.recorder.check(t)
	})
}

// TestDrainLosesLogsFirst: in a drain no log is sent before all jobs are released, and
// with a storage that does not take logs all states are saved nevertheless.
func TestDrainLosesLogsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		const jobs = 40
		work := &printing{&steps{n: 600, each: time.Second}}
		for i := range jobs {
			b.put(fmt.Sprintf("job-%d", i), "prints", "")
		}
		var mu sync.Mutex // guards the next two
		logs, early := 0, 0
		p := b.start("vm_0", job.Kinds{"prints": work}, func(c *Config) { c.Concurrency = jobs })
		time.Sleep(7*time.Second + 500*time.Millisecond)
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if strings.HasPrefix(c.Blob, joblog.Prefix) && c.Operation == storage.OpPutBlob {
				mu.Lock()
				defer mu.Unlock()
				logs++
				if b.openRecords() < jobs {
					early++
				}
				return storage.Fault{Before: time.Hour}
			}
			return storage.Fault{Before: 50 * time.Millisecond}
		})
		if _, err := b.metadata.SimulateEviction("vm_0"); err != nil {
			t.Fatal(err)
		}
		b.waitFor("the end of the drain", time.Minute, func() bool { return len(p.log.find("drained")) > 0 })
		line := p.log.find("drained")[0]
		if took := time.Duration(line["since_notice"].(float64)); line["released"] != float64(jobs) || line["states_left_out"] != 0.0 || took > 3*time.Second {
			t.Errorf("drained = %v after %s, want %d released with their states within 3s", line, took, jobs)
		}
		mu.Lock()
		defer mu.Unlock()
		if logs == 0 || early > 0 {
			t.Errorf("logs sent = %d, of which %d before all jobs were released, want some and none", logs, early)
		}
	})
}

// openRecords returns how many jobs are released.
func (b *testbed) openRecords() (open int) {
	for _, blob := range b.server.Blobs(b.names.Records) {
		if blob.Metadata["status"] == "open" {
			open++
		}
	}
	return open
}

// TestLogOfAnotherJobOfThatID: a job whose id was used before, and whose record is gone,
// begins a log of its own.
func TestLogOfAnotherJobOfThatID(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testbed) {
		kinds := job.Kinds{"prints": &printing{&steps{n: 1, each: time.Second}}}
		for range 2 {
			b.put("a", "prints", "")
			p := b.start("vm_0", kinds)
			b.waitDone("a", time.Minute)
			p.stop()
			if d := b.logOf(b.record("a")); len(d.Sections) != 1 || d.Sections[0].Count != 6 || len(d.Sections[0].Lines) != 6 {
				t.Fatalf("log = %.200q in %d sections, want the 6 lines of one delivery", texts(d), len(d.Sections))
			}
			if _, err := b.account(b.server.Transport()).Container(b.names.Records).NewBlobClient(b.blobOf("a")).Delete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}
