package rig

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
)

// Record returns a job's record, or a record without a status if there is none.
// A record that has not changed since its last read is not read again, since tests wait
// with thousands of reads.
func (b *Bed) Record(id string) checkpoint.Record {
	b.T.Helper()
	etag := b.Server.BlobETag(b.Names.Records, jobid.Path(id))
	if etag == "" {
		return checkpoint.Record{}
	}
	if known, _ := b.reads.Load(id); known != nil && string(known.(checkpoint.Record).ETag) == etag {
		r := known.(checkpoint.Record)
		r.ReadAt = time.Now().UTC().Truncate(time.Second)
		return r
	}
	r, err := b.Records.Read(b.T.Context(), id)
	if err != nil {
		return checkpoint.Record{}
	}
	b.reads.Store(id, r)
	return r
}

// WaitFor lets time pass until done returns true, and fails the test after
// limit. The time between two checks grows with the time waited.
func (b *Bed) WaitFor(what string, limit time.Duration, done func() bool) {
	b.T.Helper()
	for start := time.Now(); !done(); {
		passed := time.Since(start)
		if passed > limit {
			b.T.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(max(10*time.Millisecond, passed/200))
		if !b.realTime {
			synctest.Wait()
		}
	}
}

// WaitDone waits until the job is done.
func (b *Bed) WaitDone(id string, limit time.Duration) {
	b.T.Helper()
	b.WaitFor("job "+id+" done", limit, func() bool { return b.Record(id).Status == checkpoint.Done })
}

// PoisonMessages returns the poison messages.
func (b *Bed) PoisonMessages() []queue.Poison {
	b.T.Helper()
	var all []queue.Poison
	for _, m := range b.Server.Messages(b.Names.Poison) {
		p, err := queue.DecodePoison(m.Text)
		if err != nil {
			b.T.Errorf("poison message: %v", err)
		}
		all = append(all, p)
	}
	return all
}

// MessagesLeft returns how many messages are on the queues of jobs, hidden ones included.
func (b *Bed) MessagesLeft() (n int) {
	for _, name := range b.JobQueues() {
		n += len(b.Server.Messages(name))
	}
	return n
}

// CheckOutcome checks that a job ended exactly once and with that status, and its remains
// in storage.
func (b *Bed) CheckOutcome(t *testing.T, id string, want checkpoint.Status) {
	t.Helper()
	r := b.Record(id)
	if r.Status != want {
		t.Errorf("job %s = %q %s, want %s", id, r.Status, r.Reason, want)
	}
	if n := b.Recorder.OutcomesOf(id); n != 1 {
		t.Errorf("outcomes of job %s = %d, want 1", id, n)
	}
	b.CheckLog(t, r)
	if want := b.Recorder.ExpectedOf(id); want != nil {
		b.CheckOutputs(t, r, *want)
	}
	kept := false
	for _, p := range b.PoisonMessages() {
		kept = kept || p.ID == id
	}
	if isPoison := want == checkpoint.Poison; kept != isPoison {
		t.Errorf("job %s is in the poison queue: %t, want %t", id, kept, isPoison)
	}
	if want == checkpoint.Done && !b.Recorder.WasCleared() { // the payload of a cleared message is deleted by the age rule
		for _, blob := range b.Server.Blobs(b.Names.Payloads) {
			if strings.HasPrefix(blob.Name[len("hhh/"):], id+"/") {
				t.Errorf("payload %s of a job that is done was left behind", blob.Name)
			}
		}
	}
}

// CheckLog checks that a job's log has lines of no other job, and that it ends with the
// last line of a job that printed and is done: the record has that, for any fate of the
// blob.
func (b *Bed) CheckLog(t *testing.T, r checkpoint.Record) {
	t.Helper()
	d := b.LogOf(r)
	lines := Texts(d)
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
	if r.Kind == "prints" && r.Status == checkpoint.Done && (len(lines) == 0 || lines[len(lines)-1] != string(LastLineOf(r.ID))) {
		t.Errorf("log of job %s ends with %.80q, want its last line", r.ID, lines)
	}
}

// BlobOf returns the name of a job's record, or the empty string.
func (b *Bed) BlobOf(id string) string { return recorder.BlobOf(b.Server, b.Names, id) }

// FilesOf returns the outputs of a job as a reader of its record finds them, by path, and
// fails unless each agrees with its list.
func (b *Bed) FilesOf(id string) map[string]string {
	b.T.Helper()
	r := b.Record(id)
	files, err := b.Outputs.Files(b.T.Context(), id, r.Outputs.Hash)
	if err != nil {
		b.T.Errorf("outputs of %s: %v", id, err)
	}
	contents := map[string]string{}
	for _, f := range files {
		body, err := b.Outputs.OpenChecked(b.T.Context(), id, f)
		if err != nil {
			b.T.Error(err)
			continue
		}
		data, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			b.T.Error(err)
		}
		contents[f.Path] = string(data)
	}
	return contents
}

// LogOf returns the kept lines of a job's log, in record and blob together.
func (b *Bed) LogOf(r checkpoint.Record) joblog.Document {
	b.T.Helper()
	stored, err := b.Logs.Read(b.T.Context(), r.ID, r.CreatedAt)
	if err != nil {
		b.T.Fatal(err)
	}
	return joblog.Merge(stored, joblog.Parse([]byte(r.Log)))
}

// Texts returns the texts of a document's lines.
func Texts(d joblog.Document) (all []string) {
	for _, s := range d.Sections {
		for _, l := range s.Lines {
			_, _, text := l.Decode()
			all = append(all, text)
		}
	}
	return all
}

// CheckOutputs checks the outputs of a job when it has ended, as a reader finds them: each
// has the content of its step, and a job that is done has all of them.
func (b *Bed) CheckOutputs(t *testing.T, r checkpoint.Record, want recorder.ExpectedOutputs) {
	t.Helper()
	got := b.FilesOf(r.ID)
	for step := range want.Steps {
		content, ok := got[StepFile(step)]
		if delete(got, StepFile(step)); ok && content != want.Content(step) {
			t.Errorf("output %s of %s = %q, want %q", StepFile(step), r.ID, content, want.Content(step))
		}
		if !ok && r.Status == checkpoint.Done {
			t.Errorf("%s is done, and its output %s is missing", r.ID, StepFile(step))
		}
	}
	for name := range got {
		t.Errorf("%s has an output %s, which it never sent", r.ID, name)
	}
}

// OpenRecords returns how many jobs are released.
func (b *Bed) OpenRecords() (open int) {
	for _, blob := range b.Server.Blobs(b.Names.Records) {
		if blob.Metadata["status"] == "open" {
			open++
		}
	}
	return open
}
