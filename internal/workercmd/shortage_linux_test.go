package workercmd

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// TestShortOfDescriptors: a worker that can open no connection for some seconds keeps
// its job, logs the shortage, stays healthy, and resumes once it can.
func TestShortOfDescriptors(t *testing.T) {
	c := newCloud(t, true)
	w := c.working(t, "counts", "--checkpoint-interval=200ms")
	c.untilRecord(t, "a", "saved", hasState)
	before := w.limitFiles(t, 3) // open descriptors stay open
	var lastCall atomic.Int64
	lastCall.Store(time.Now().UnixNano())
	c.storage.OnCall(func(storage.Call) storage.Fault {
		lastCall.Store(time.Now().UnixNano())
		return storage.Fault{DropRequest: true} // which closes them
	})
	told := false
	for late := time.Now().Add(patience); !told && time.Now().Before(late); time.Sleep(50 * time.Millisecond) {
		closed := time.Since(time.Unix(0, lastCall.Load())) > 2*time.Second // and the worker had reason to use any that is left
		told = closed && strings.Contains(w.text(), "too many open files")
	}
	if !told {
		t.Fatalf("the log does not say that there are too many open files:\n%s", w.text())
	}
	c.storage.OnCall(nil)
	saved := c.untilRecord(t, "a", "saved", hasState)
	time.Sleep(time.Second) // nothing comes through, although storage is there again
	if r := c.untilRecord(t, "a", "saved", hasState); r.Write != saved.Write {
		t.Errorf("writes while no connection can be opened = %d to %d, want none", saved.Write, r.Write)
	}
	w.limitFiles(t, before)
	after := c.untilRecord(t, "a", "saved again", func(r checkpoint.Record) bool { return r.Fraction > saved.Fraction })
	if after.Generation != 1 || after.Failures != 0 {
		t.Errorf("record = %+v, want the first claim and no failure", after)
	}
	w.demandHealth(t, "after the shortage")
	c.demandHandedOver(t, w)
}

// text is all that the worker has logged.
func (w *workerProcess) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.lines)
}

// limitFiles sets how many descriptors a process may have open from now on, and returns
// the previous limit.
func (w *workerProcess) limitFiles(t *testing.T, n uint64) (before uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(w.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return was.Cur
}

// TestLogIsNotRead: a worker whose log goes into a full pipe, as when the program
// behind it hangs, does not hang with it.
func TestLogIsNotRead(t *testing.T) {
	c := newCloud(t, true)
	c.put(t, "a", "polite")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	const least = 4096 // bytes, of any pipe
	if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, least); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(make([]byte, least)); err != nil {
		t.Fatal(err)
	}
	w := c.startUnread(t, writer)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	c.untilRecord(t, "a", "saved", hasState)
	c.demandHandedOver(t, w)
}
