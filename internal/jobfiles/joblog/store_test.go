package joblog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/blobs"
)

// inBubble runs a test with the emulator in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, server *storage.Server, store *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := storage.New(storage.Options{})
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		c := account.Container("test-payloads")
		if _, err := c.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		test(t, server, NewStore(c))
	})
}

// sections describes a document, such as "1:3/5 2:1/1": delivery, lines kept, lines.
func sections(d Document) string {
	var all []string
	for _, s := range d.Sections {
		all = append(all, fmt.Sprintf("%d:%d/%d", s.Generation, len(s.Lines), s.Count))
	}
	return strings.Join(all, " ")
}

// writeLine adds a line to the log of a delivery, and stores the log even if the record has room for it.
func (o *Output) writeLine(t *testing.T, line string) error {
	t.Helper()
	o.Add(Stdout, []byte(line))
	o.LeaveRecord()
	return o.WriteLast(t.Context(), time.Second)
}

// TestDeliveriesOfAJob: in every order of their writes, deliveries of one job remove no line of each other, and the log
// has the lines that only the record of an earlier one had.
func TestDeliveriesOfAJob(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		created, keeper := time.Now(), NewKeeper(store, MinSize)
		recorded := ""
		outputs := map[int]*Output{}
		for generation := 1; generation <= 3; generation++ {
			o := keeper.Open("a", created, generation, "w", recorded)
			if generation == 2 {
				o.Add(Stdout, []byte("in the record alone"))
			}
			recorded, outputs[generation] = o.Tail(), o
		}
		for i, step := range []struct {
			generation int
			want       string
		}{{1, "1:1/1"}, {1, "1:2/2"}, {3, "1:2/2 2:1/1 3:1/1"}, {1, "1:3/3 2:1/1 3:1/1"}, {2, "1:3/3 2:2/2 3:1/1"}} {
			err := outputs[step.generation].writeLine(t, "x")
			d, readErr := store.Read(t.Context(), "a", created)
			if got := sections(d); err != nil || readErr != nil || got != step.want {
				t.Errorf("step %d: log = %q, %v, %v, want %q", i, got, err, readErr, step.want)
			}
		}
		for id, created := range map[string]time.Time{"a": created.Add(time.Second), "a-b": created, "b": created} {
			if d, err := store.Read(t.Context(), id, created); err != nil || len(d.Sections) != 0 {
				t.Errorf("log of another job %s = %q, %v, want none", id, sections(d), err)
			}
		}
	})
}

// TestLastDeliveriesAreKept: a job has the blobs of its last deliveries, and those before are removed.
func TestLastDeliveriesAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		created, keeper := time.Now(), NewKeeper(store, MinSize)
		recorded := ""
		for generation := 1; generation <= 2*mostBlobs; generation++ {
			o := keeper.Open("a", created, generation, "w", recorded)
			if err := o.writeLine(t, strings.Repeat("x", 600)); err != nil {
				t.Fatal(err)
			}
			recorded = o.Tail()
		}
		d, err := store.Read(t.Context(), "a", created)
		if first := d.Sections[0].Generation; err != nil || len(d.Sections) != mostBlobs+1 || first != mostBlobs || d.Dropped != mostBlobs-1 {
			t.Errorf("log = %d lines left out, then %q, %v, want the last %d deliveries and the line in the record before them", d.Dropped,
				sections(d), err, mostBlobs)
		}
	})
}

// TestNewerVersionIsLeftOut: a blob of a newer version is not read, and the others are.
func TestNewerVersionIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		created, keeper := time.Now(), NewKeeper(store, MinSize)
		for generation := 1; generation <= 2; generation++ {
			if err := keeper.Open("a", created, generation, "w", "").writeLine(t, "x"); err != nil {
				t.Fatal(err)
			}
		}
		newer := blobs.Options{Metadata: map[string]*string{keyVersion: new("2")}}
		if _, err := store.blobs.Put(t.Context(), delivery{"a", created, 1}.name(), nil, newer); err != nil {
			t.Fatal(err)
		}
		if d, err := store.Read(t.Context(), "a", created); err != nil || sections(d) != "2:1/1" {
			t.Errorf("log = %q, %v, want the blob of version 1", sections(d), err)
		}
	})
}

// TestWriteWithFaults: lines of a write with an unknown outcome are written again.
func TestWriteWithFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		created := time.Now()
		o := NewKeeper(store, MinSize).Open("a", created, 1, "w", "")
		fault := storage.Fault{DropReply: true}
		server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob {
				return fault
			}
			return storage.Fault{}
		})
		if err := o.writeLine(t, "x"); err == nil || !o.Pending() {
			t.Errorf("WriteLast without an answer = %v, pending %t, want an error and the line pending", err, o.Pending())
		}
		fault = storage.Fault{}
		if err := o.writeLine(t, "y"); err != nil || o.Pending() {
			t.Errorf("WriteLast after it = %v, pending %t, want nothing pending", err, o.Pending())
		}
		if d, err := store.Read(t.Context(), "a", created); err != nil || sections(d) != "1:2/2" {
			t.Errorf("log = %q, %v, want both lines", sections(d), err)
		}
	})
}

// TestList: the logs of all jobs are listed in the order of their records, whatever pages their list has, and removed as they
// were listed.
func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		keeper := NewKeeper(store, MinSize)
		var want []string
		for _, id := range []string{"a", "a-b", "a.b", "ab", "b", "b~"} {
			for generation := 1; generation <= 2; generation++ {
				if err := keeper.Open(id, time.Now(), generation, "w", "").writeLine(t, "line"); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, jobid.Path(id))
		}
		slices.Sort(want)
		for _, name := range []string{"x", "000/a,b,1", "000/,20260309T120000.000Z,1", jobid.Path("a") + ",20260309T120000.000Z,01"} {
			if _, err := store.blobs.Put(t.Context(), Prefix+name, nil, blobs.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var got []string
		for s, err := range store.List(t.Context()) {
			if err != nil || s.ReadAt.Sub(s.ModifiedAt) != time.Minute || len(s.names) != 2 || s.Size == 0 {
				t.Fatalf("listed %+v, %v, want two blobs written a minute ago", s, err)
			}
			got = append(got, jobid.Path(s.ID))
			for _, want := range []bool{true, false} {
				if removed, err := store.Remove(t.Context(), s); err != nil || removed != want {
					t.Errorf("Remove = %t, %v, want %t", removed, err, want)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
		for s, err := range store.List(t.Context()) {
			t.Errorf("listed %+v, %v after all were removed", s, err)
		}
	})
}

// TestLateWrite: a write of a log that was not answered, and arrives after the next one, changes
// nothing, and a log that was removed is written again.
func TestLateWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		o := NewKeeper(store, MinSize).Open("a", time.Now(), 1, "w", "")
		if err := o.writeLine(t, "one"); err != nil {
			t.Fatal(err)
		}
		first, late := o.etag, []byte("late")
		write := func() error {
			_, err := store.blobs.Put(t.Context(), o.of.name(), late, blobs.Options{If: blobs.Same(first)})
			return err
		}
		if err := write(); err != nil { // in time, and its answer is lost
			t.Fatal(err)
		}
		for _, line := range []string{"two", "three"} {
			if err := o.writeLine(t, line); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if err := write(); !blobs.IsConflict(err) {
				t.Errorf("a late write after %s = %v, want a conflict", line, err)
			}
		}
		if _, err := store.blobs.Delete(t.Context(), o.of.name(), ""); err != nil {
			t.Fatal(err)
		}
		server.ResetCounts()
		if err := o.writeLine(t, "four"); err != nil {
			t.Fatal(err)
		}
		if got := server.Counts(); got[storage.OpPutBlob] != 2 || got[storage.OpGetBlobProperties] != 1 {
			t.Errorf("calls after the removal: %v, want a refused write, a look and a write", got)
		}
		d, err := store.Read(t.Context(), "a", o.of.created)
		if got := sections(d); err != nil || got != "1:4/4" {
			t.Errorf("log = %q, %v, want its four lines", got, err)
		}
	})
}
