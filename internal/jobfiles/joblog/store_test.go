package joblog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
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

// TestWriterAgainstOthers: for every order of their writes, owners of one job lose no
// line of each other, and an owner that has a successor writes nothing more.
func TestWriterAgainstOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		created := time.Now()
		logs, writers := map[int]*Log{}, map[int]*Writer{}
		for generation := 1; generation <= 3; generation++ {
			logs[generation] = New(generation, "w", MinSize, "")
			writers[generation] = store.Writer("a", created, logs[generation], generation == 1)
		}
		for i, step := range []struct {
			generation int
			superseded bool
			want       string
		}{
			{1, false, "1:1/1"},
			{1, false, "1:2/2"},
			{2, false, "1:2/2 2:1/1"},
			{1, true, "1:2/2 2:1/1"},
			{1, true, "1:2/2 2:1/1"},
			{3, false, "1:2/2 2:1/1 3:1/1"},
			{2, true, "1:2/2 2:1/1 3:1/1"},
		} {
			logs[step.generation].Add(Stdout, []byte("x"))
			if err := writers[step.generation].Write(t.Context()); errors.Is(err, ErrSuperseded) != step.superseded || err != nil &&
				!step.superseded {
				t.Errorf("step %d: Write = %v, want superseded %t", i, err, step.superseded)
			}
			d, err := store.Read(t.Context(), "a", created)
			if got := sections(d); err != nil || got != step.want {
				t.Errorf("step %d: log = %q, %v, want %q", i, got, err, step.want)
			}
		}
		if d, err := store.Read(t.Context(), "a", created.Add(time.Second)); err != nil || len(d.Sections) != 0 {
			t.Errorf("log of another job of that id = %q, %v, want none", sections(d), err)
		}
		if d, err := store.Read(t.Context(), "b", created); err != nil || len(d.Sections) != 0 {
			t.Errorf("log of a job without one = %q, %v, want none", sections(d), err)
		}
	})
}

// TestWriterMeetsAnotherJob: the log of an earlier job of the id is replaced, and a
// writer that is older than the log that it finds leaves that alone. A writer that owns
// the record no more leaves the log of any other job alone.
func TestWriterMeetsAnotherJob(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		write := func(w *Writer, log *Log) error {
			log.Add(Stdout, []byte("x"))
			return w.Write(t.Context())
		}
		earlier, later := New(1, "w", MinSize, ""), New(1, "w", MinSize, "")
		earlierWriter, laterWriter := store.Writer("a", time.Now(), earlier, true), store.Writer("a", time.Now().Add(time.Hour), later, true)
		if err := errors.Join(write(earlierWriter, earlier), write(earlierWriter, earlier), write(laterWriter, later)); err != nil {
			t.Fatal(err)
		}
		if err := write(earlierWriter, earlier); !errors.Is(err, ErrSuperseded) {
			t.Errorf("Write of the earlier job = %v, want ErrSuperseded", err)
		}
		if d, err := store.Read(t.Context(), "a", time.Now().Add(time.Hour)); err != nil || sections(d) != "1:1/1" {
			t.Errorf("log = %q, %v, want that of the later job alone", sections(d), err)
		}
		cancelled := New(1, "w", MinSize, "")
		cancelled.LeaveRecord()
		if err := write(store.Writer("a", time.Now(), cancelled, true), cancelled); !errors.Is(err, ErrSuperseded) {
			t.Errorf("Write of a cancelled job = %v, want ErrSuperseded", err)
		}
	})
}

// TestWriterWithFaults: a write with an unknown outcome is repeated by the next write and
// changes nothing twice, and a log that was removed is written again.
func TestWriterWithFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, server *storage.Server, store *Store) {
		created, log := time.Now(), New(1, "w", MinSize, "")
		w := store.Writer("a", created, log, true)
		fault := storage.Fault{DropReply: true}
		server.OnCall(func(c storage.Call) storage.Fault {
			if c.Operation == storage.OpPutBlob {
				return fault
			}
			return storage.Fault{}
		})
		for range 3 {
			log.Add(Stdout, []byte(strings.Repeat("x", 1000)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Write(ctx); err == nil || !log.Pending() {
			t.Errorf("Write without an answer = %v, pending %t, want an error and the lines pending", err, log.Pending())
		}
		fault = storage.Fault{}
		log.Add(Stdout, []byte("y"))
		if err := w.Write(t.Context()); err != nil || log.Pending() {
			t.Errorf("Write after it = %v, pending %t, want nothing pending", err, log.Pending())
		}
		for l, err := range store.List(t.Context()) {
			if removed, removeErr := store.Remove(t.Context(), l); err != nil || removeErr != nil || !removed {
				t.Errorf("Remove = %t, %v, %v", removed, err, removeErr)
			}
		}
		log.Add(Stdout, []byte("z"))
		if err := w.Write(t.Context()); err != nil {
			t.Errorf("Write of a log that was removed = %v, want it written again", err)
		}
		if d, err := store.Read(t.Context(), "a", created); err != nil || sections(d) != "1:5/5" {
			t.Errorf("log = %q, %v, want five lines", sections(d), err)
		}
	})
}

// TestList: all logs are listed, whatever pages their list has.
func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *storage.Server, store *Store) {
		var want []string
		for i := range 6 {
			id := fmt.Sprint("job-", i)
			log := New(1, "w", MinSize, "")
			log.Add(Stdout, []byte("line\n"))
			if err := store.Writer(id, time.Now(), log, true).Write(t.Context()); err != nil {
				t.Fatal(err)
			}
			want = append(want, id)
		}
		for range 5 {
			var got []string
			for s, err := range store.List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, s.ID)
			}
			slices.Sort(got) // the order is the order of the blobs' names
			if !slices.Equal(got, want) {
				t.Fatalf("listed %q, want %q", got, want)
			}
		}
	})
}
