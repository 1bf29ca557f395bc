package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// ended leaves a job that has ended, with a log of so many lines of 100 bytes in its blob.
func (b *rig) ended(t *testing.T, id, kind string, status checkpoint.Status, lines int) {
	t.Helper()
	claim, err := b.stores.Records.Create(t.Context(), checkpoint.Delivery{ID: id, Kind: kind, PayloadHash: queue.Payload{}.Hash(),
		MessageID: "m"}, "vm_0")
	if err == nil && status == checkpoint.Done {
		err = claim.Commit(t.Context(), []byte("12345"))
	}
	if err == nil && status == checkpoint.Cancelled {
		_, err = b.stores.Records.Cancel(t.Context(), id, "operator", "not wanted", false)
	}
	if err == nil && lines > 0 {
		err = b.log(t.Context(), id, claim.Record().CreatedAt, lines)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// log writes the log of a job.
func (b *rig) log(ctx context.Context, id string, created time.Time, lines int) error {
	log := joblog.NewKeeper(b.stores.Logs, joblog.MinSize).Open(id, created, 1, "vm_0", "")
	log.LeaveRecord()
	for n := range lines {
		log.Add(joblog.Stdout, fmt.Appendf(nil, "%-100d", n))
	}
	return log.WriteLast(ctx, time.Minute)
}

// cleaner returns a Cleaner over the connection that can fail.
func (b *rig) cleaner(t *testing.T) *Cleaner {
	t.Helper()
	s := b.connect(t, b.link)
	return &Cleaner{
		Records: s.Records, Logs: s.Logs, Outputs: s.Outputs, Queues: s.JobQueues, Poison: s.Poison, OlderThan: MinCleanAge,
	}
}

// TestCleanFiles: a file that jobs have brought goes when no open job names it, a week after the
// age of records. All stay while an open job may name files that its record does not show.
func TestCleanFiles(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		container := b.stores.Account.Container(b.names.Outputs)
		file := func(hash string) string {
			name := outputs.FileName(hash, time.Now())
			if _, err := container.NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("12345"), nil); err != nil {
				t.Fatal(err)
			}
			return name
		}
		open := func(id, blob, resolved string) *checkpoint.Claim {
			list := checkpoint.PackInputs([]byte(`[{"container":"` + b.names.Outputs + `","blob":"` + blob + `"}]`))
			if blob == "" {
				list = ""
			}
			claim, err := b.stores.Records.Create(t.Context(), checkpoint.Delivery{ID: id, Kind: "command", PayloadHash: queue.Payload{}.Hash(),
				MessageID: "m", InputList: list}, "vm_0")
			if err == nil {
				claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Inputs = resolved; return f })
				err = claim.Save(t.Context(), checkpoint.Snapshot{State: []byte("1")})
			}
			if err != nil {
				t.Fatal(err)
			}
			return claim
		}
		file("goes")
		done := open("done", file("done"), "hash")
		if err := done.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		open("runs", file("named"), "hash")
		unknown := open("unknown", "", "hash")
		left := func() string {
			if _, err := b.cleaner(t).Clean(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, blob := range b.server.Blobs(b.names.Outputs) {
				names = append(names, blob.Name[strings.LastIndexByte(blob.Name, '/')+1:])
			}
			return strings.Join(names, " ")
		}
		time.Sleep(MinCleanAge + outputs.FilesPeriod - time.Hour)
		file("young")
		time.Sleep(2 * time.Hour)
		if got, want := left(), "done goes named young"; got != want {
			t.Errorf("files while an open job does not show its inputs: %s, want %s", got, want)
		}
		if err := unknown.Commit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got, want := left(), "named young"; got != want {
			t.Errorf("files that are left: %s, want %s", got, want)
		}
	})
}

// left returns the ids of the records and the ids of the logs, in order of their names.
func (b *rig) left(t *testing.T) string {
	t.Helper()
	var ids []string
	for _, blob := range b.server.Blobs(b.names.Records) {
		ids = append(ids, blob.Name[len("hhh/"):])
	}
	ids = append(ids, "|")
	for _, blob := range b.server.Blobs(b.names.Payloads) {
		id, _, _ := strings.Cut(blob.Name[len("logs/hhh/"):], ",")
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// old leaves jobs of every status: "a" and "b" are done, "c" is cancelled. All are old
// enough, except "young".
func (b *rig) old(t *testing.T) {
	t.Helper()
	b.ended(t, "a", "k", checkpoint.Done, 40)
	b.ended(t, "b", "other", checkpoint.Done, 0)
	b.ended(t, "c", "k", checkpoint.Cancelled, 0)
	b.ended(t, "runs", "k", checkpoint.Running, 40)
	b.put(t, given{id: "poison"})
	b.put(t, given{id: "done", status: checkpoint.Done})
	if err := b.log(t.Context(), "orphan", time.Now(), 3); err != nil {
		t.Fatal(err)
	}
	time.Sleep(MinCleanAge)
	b.ended(t, "young", "k", checkpoint.Done, 40)
	if err := b.log(t.Context(), "new", time.Now(), 3); err != nil {
		t.Fatal(err)
	}
}

func TestClean(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Cleaner)
		want   CleanReport
		left   string
	}{
		{"all", func(*Cleaner) {}, CleanReport{Read: 7, Done: 2, Cancelled: 1, Bytes: 10, Logs: 2, LogBytes: 4415, Poison: 1},
			"poison runs young done | runs young new"},
		{"nothing yet", func(c *Cleaner) { c.DryRun = true }, CleanReport{Read: 7, Done: 2, Cancelled: 1, Bytes: 10, Logs: 2, LogBytes: 4415,
			Poison: 1}, ""},
		{"a kind", func(c *Cleaner) {
			c.SkipOrphanedLogs, c.Select = true, func(r checkpoint.Record) bool { return r.Kind == "other" }
		}, CleanReport{Read: 7, Done: 1, Bytes: 5}, "poison runs a young c done | runs orphan a young new"},
		{"later", func(c *Cleaner) { c.OlderThan += time.Hour }, CleanReport{Read: 7}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				b.old(t)
				before := b.left(t)
				b.strangers(t)
				row.want.Skipped = len(strangers)
				c := b.cleaner(t)
				row.change(c)
				got, err := c.Clean(t.Context(), nil, func(id string, err error) { t.Errorf("job %s: %v", id, err) })
				if got.LogBytes > 0 { // a line has the milliseconds since the log began
					got.LogBytes = row.want.LogBytes
				}
				if err != nil || got != row.want {
					t.Errorf("Clean = %+v, %v, want %+v", got, err, row.want)
				}
				want := row.left
				if want == "" {
					want = before
				}
				for _, name := range strangers {
					if _, err := b.stores.Account.Container(b.names.Records).NewBlobClient(name).Delete(t.Context(), nil); err != nil {
						t.Errorf("the blob %q, which is no record: %v, want it left alone", name, err)
					}
				}
				if got := sorted(b.left(t)); got != sorted(want) {
					t.Errorf("left = %q, want %q", got, sorted(want))
				}
			})
		})
	}
}

// strangers are names of blobs in the container of records that are no records.
var strangers = []string{"0", "readme.txt", "000/a", "ca9/a/b", "fff/has space", "fff/.hidden", "zzz/y"}

// strangers puts these blobs.
func (b *rig) strangers(t *testing.T) {
	t.Helper()
	for _, name := range strangers {
		_, err := b.stores.Account.Container(b.names.Records).NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("x"), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sorted returns words in order, of each side of the bar.
func sorted(words string) string {
	records, logs, _ := strings.Cut(words, "|")
	sortWords := func(s string) string {
		fields := strings.Fields(s)
		for i := range fields {
			for j := i; j > 0 && fields[j] < fields[j-1]; j-- {
				fields[j], fields[j-1] = fields[j-1], fields[j]
			}
		}
		return strings.Join(fields, " ")
	}
	return sortWords(records) + " | " + sortWords(logs)
}

// TestCleanIsRefused: nothing is removed while a message of the job may exist.
func TestCleanIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.ended(t, "a", "k", checkpoint.Done, 0)
		e := queue.Envelope{ID: "late", Kind: "k", EnqueuedAt: time.Now()}
		if err := b.stores.OnDemand.Put(t.Context(), e, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(MinCleanAge + time.Hour)
		c := b.cleaner(t)
		if _, err := c.Clean(t.Context(), nil, nil); !errors.Is(err, ErrBacklog) || !strings.Contains(err.Error(), "8d1h") {
			t.Errorf("Clean with a backlog = %v, want ErrBacklog with its age", err)
		}
		c.OlderThan = MinCleanAge - time.Hour
		if _, err := c.Clean(t.Context(), nil, nil); !errors.Is(err, ErrTooYoung) || !strings.Contains(err.Error(), "7d23h is less than 8d") {
			t.Errorf("Clean of young records = %v, want ErrTooYoung with both ages", err)
		}
		c.OlderThan = MinCleanAge + 2*time.Hour
		if got, err := c.Clean(t.Context(), nil, nil); err != nil || got.Done != 0 {
			t.Errorf("Clean beyond the backlog = %+v, %v, want nothing old enough", got, err)
		}
		if got := b.left(t); got != "a |" {
			t.Errorf("left = %q, want the record", got)
		}
	})
}

// TestCleanAgainstOthers: a record that is written, and a job that is put again, between
// the listing and the deletion lose nothing.
func TestCleanAgainstOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.ended(t, "removed", "k", checkpoint.Done, 40)
		b.ended(t, "written", "k", checkpoint.Done, 40)
		b.ended(t, "again", "k", checkpoint.Done, 40)
		time.Sleep(MinCleanAge)
		records := b.stores.Account.Container(b.names.Records)
		var met sync.Map // each blob once: the removal by the age rule is a call too
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if _, again := met.LoadOrStore(c.Operation+c.Container+c.Blob, true); again || c.Operation != storage.OpDeleteBlob {
				return storage.Fault{}
			}
			ctx, id := context.Background(), c.Blob[strings.LastIndex(c.Blob, "/")+1:]
			id, _, _ = strings.Cut(id, ",") // of a log
			var err error
			switch isRecord := c.Container == b.names.Records; {
			case id == "written" && isRecord: // by a newer version
				_, err = records.NewBlobClient(c.Blob).SetMetadata(ctx, map[string]*string{"v": new("1"), "status": new("done"), "more": new("1")}, nil)
			case id == "removed" && isRecord: // by the account's age rule
				_, err = records.NewBlobClient(c.Blob).Delete(ctx, nil)
			case id == "again" && !isRecord: // its record is gone, and a worker has the next job of that id
				d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "m2"}
				var claim *checkpoint.Claim
				if claim, err = b.stores.Records.Create(ctx, d, "vm_1"); err == nil {
					err = b.log(ctx, id, claim.Record().CreatedAt, 3)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
			return storage.Fault{}
		})
		c := b.cleaner(t)
		got, err := c.Clean(t.Context(), nil, nil)
		if want := (CleanReport{Read: 3, Done: 1, Bytes: 5, Logs: 1, LogBytes: got.LogBytes, Changed: 2}); err != nil || got != want {
			t.Errorf("Clean = %+v, %v, want %+v", got, err, want)
		}
		if got := sorted(b.left(t)); got != "again written | again removed written" {
			t.Errorf("left = %q, want the record that was written, that of the next job, and their logs", got)
		}
		if r, err := b.stores.Records.Read(t.Context(), "again"); err != nil || r.Status != checkpoint.Running || r.MessageID != "m2" {
			t.Errorf("record of the next job = %+v, %v, want it running", r, err)
		}
	})
}

// TestCleanContinues: a job that cannot be removed is reported, and the others are removed.
// Blobs of others are not looked at, and no log goes whose record this version cannot
// read.
func TestCleanContinues(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		for i := range 40 {
			b.ended(t, fmt.Sprintf("job-%d", i), "k", checkpoint.Done, 0)
		}
		b.ended(t, "newer", "k", checkpoint.Done, 3)
		b.setVersion(t, "newer", "99")
		records := b.stores.Account.Container(b.names.Records)
		for _, name := range []string{"0/z", "fff/0", "readme.txt"} {
			if _, err := records.NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 40 { // more than a look at the front shows
			b.put(t, given{id: fmt.Sprintf("poison-%d", i)})
		}
		b.put(t, given{id: "last", status: checkpoint.Done})
		time.Sleep(MinCleanAge)
		b.server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpDeleteBlob && strings.HasSuffix(c.Blob, "/job-7") {
				return storage.Fault{Refuse: &storage.Error{Status: http.StatusPreconditionFailed, Code: "LeaseIdMissing"}}
			}
			return storage.Fault{}
		})
		dry := b.cleaner(t)
		dry.DryRun = true
		if got, err := dry.Clean(t.Context(), nil, nil); err != nil || !got.PoisonUnseen || got.Done != 41 {
			t.Errorf("dry run = %+v, %v, want 41 jobs, and that the poison queue was not seen whole", got, err)
		}
		var failed []string
		got, err := b.cleaner(t).Clean(t.Context(), nil, func(id string, _ error) { failed = append(failed, id) })
		if err != nil || got.Done != 39 || got.Failed != 1 || len(failed) != 1 || failed[0] != "job-7" || got.Poison != 1 || got.Logs != 0 {
			t.Errorf("Clean = %+v, %v, failed %v, want 39 removed, job-7 failed, the one with a poison message left alone", got, err, failed)
		}
		if left := len(b.server.Blobs(b.names.Records)); left != 1+1+3+40+1 {
			t.Errorf("blobs left = %d, want the failed one, the newer one, the strangers, poison, and the one with a message", left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.cleaner(t).Clean(ctx, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Clean of an ended context = %v, want its cause", err)
		}
	})
}

// pathOf returns the name of a job's record.
func pathOf(b *rig, id string) string {
	for _, blob := range b.server.Blobs(b.names.Records) {
		if strings.HasSuffix(blob.Name, "/"+id) {
			return blob.Name
		}
	}
	return ""
}

// TestCleanOutputs: outputs go with their job, and outputs that nothing names go at the
// same age. Outputs of jobs that stay, and young outputs, are left alone.
func TestCleanOutputs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		store := func(id, status string) {
			claim, err := b.stores.Records.Create(t.Context(), checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(),
				MessageID: "m"}, "vm_0")
			if err != nil {
				t.Fatal(err)
			}
			all := outputs.Limits{Files: 10, Bytes: 1 << 20}
			stale := b.stores.Outputs.NewSet(id, 1, "22222222-dead", all, "", nil)
			set := b.stores.Outputs.NewSet(id, 1, claim.Token(), all, "", nil)
			for _, s := range []*outputs.Set{stale, set} {
				if _, err := s.Send(t.Context(), "x", 5, strings.NewReader("12345")); err != nil {
					t.Fatal(err)
				}
			}
			ref, err := set.Record(t.Context())
			if err == nil {
				claim.SetFacts(func(f checkpoint.Facts) checkpoint.Facts { f.Outputs = checkpoint.Outputs(ref); return f })
				if status == "done" {
					err = claim.Commit(t.Context(), nil)
				} else {
					err = claim.Save(t.Context(), checkpoint.Snapshot{})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		left := func() (n map[string]int) {
			n = map[string]int{}
			for _, blob := range b.server.Blobs(b.names.Outputs) {
				n[strings.Split(blob.Name, "/")[1]]++
			}
			return n
		}
		store("goes", "done")
		store("runs", "running")
		store("stays", "done")
		store("cancelled", "running")
		if _, err := b.stores.Records.Cancel(t.Context(), "cancelled", "test", "", false); err != nil {
			t.Fatal(err)
		}
		orphan := b.stores.Outputs.NewSet("orphan", 1, "33333333-dead", outputs.Limits{Files: 1, Bytes: 10}, "", nil)
		if _, err := orphan.Send(t.Context(), "x", 5, strings.NewReader("12345")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(MinCleanAge + time.Hour)
		store("young", "done")
		c := b.cleaner(t)
		c.Select = func(r checkpoint.Record) bool { return r.ID != "stays" }
		c.DryRun = true
		if _, err := c.Clean(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int{"goes": 3, "runs": 3, "stays": 3, "cancelled": 3, "orphan": 1, "young": 3}, left()); diff != "" {
			t.Errorf("blobs after a dry run (-want +got)\n%s", diff)
		}
		c.DryRun, c.SkipOrphanedLogs = false, true
		c.Select = func(r checkpoint.Record) bool { return r.ID == "cancelled" }
		if _, err := c.Clean(t.Context(), nil, nil); err != nil || left()["cancelled"] != 0 {
			t.Errorf("Clean = %v, %d blobs of the cancelled job are left, want none", err, left()["cancelled"])
		}
		c.SkipOrphanedLogs = false
		c.Select = func(r checkpoint.Record) bool { return r.ID != "stays" }
		report, err := c.Clean(t.Context(), nil, nil)
		if err != nil || report.Failed > 0 {
			t.Fatalf("Clean = %+v, %v", report, err)
		}
		if diff := cmp.Diff(map[string]int{"runs": 3, "stays": 2, "young": 3}, left()); diff != "" {
			t.Errorf("blobs left (-want +got)\n%s", diff)
		}
		if report.Outputs != 5 {
			t.Errorf("outputs removed = %d, want 5: three of a job, one that was not committed, one without a record", report.Outputs)
		}
	})
}

// TestCleanIsRepeated: a fault at any call leaves nothing that a repeat does not remove,
// and removes nothing else.
func TestCleanIsRepeated(t *testing.T) {
	step := proof.Times(5, 1)
	first := 1 + int(proof.Seed(t)%uint64(step))
	for _, effect := range []bool{false, true} {
		for at, reached := first, true; reached; at += step {
			inBubble(t, func(t *testing.T, b *rig) {
				b.old(t)
				b.link.dieAt, b.link.effect = at, effect
				_, err := b.cleaner(t).Clean(t.Context(), nil, func(string, error) {})
				if reached = b.link.count() >= at; reached && err == nil && b.link.count() == at {
					t.Logf("call %d was the last", at)
				}
				b.restart(t)
				if _, err := b.cleaner(t).Clean(t.Context(), nil, func(id string, err error) { t.Errorf("job %s: %v", id, err) }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * hold)
				if got := sorted(b.left(t)); got != "done poison runs young | new runs young" {
					t.Fatalf("left after a fault at call %d = %q, want what is not old enough or not over", at, got)
				}
			})
		}
	}
}
