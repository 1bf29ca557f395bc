//go:build linux

package trial

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// observing is a job's folder on a VM, with the observer of its files.
type observing struct {
	t        *testing.T
	recorder *recorder
	job      string
	marks    int
	closed   chan string // names of files that were closed after a write
}

func observe(t *testing.T) *observing {
	t.Helper()
	root := t.TempDir()
	o := &observing{t: t, recorder: newRecorder(), job: filepath.Join(root, "spotworker-scratch-1", "job-1"),
		closed: make(chan string, 1000)}
	w := &watcher{vm: "spot_1", root: root, recorder: o.recorder}
	stop, err := watchFiles(root, func(c change) {
		w.tell(c)
		if c.op == closed {
			o.closed <- filepath.Base(c.name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for _, dir := range []string{workName, keptName, tempName} {
		if err := os.MkdirAll(filepath.Join(o.job, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o.settle() // watches are added when a folder's event is read
	return o
}

// markPrefix begins the names of the files that settle makes.
const markPrefix = "mark-"

// settle waits until all changes so far were read: the event of a file that is closed
// now follows theirs. An event of its creation would not do: it is also told when a new
// folder is listed, before older events.
func (o *observing) settle() {
	o.t.Helper()
	first := o.marks + 1
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); { // a busy machine is slow, not stuck
		o.marks++ // a name of its own: events of a mark of an earlier call may still come
		name := markPrefix + strconv.Itoa(o.marks)
		o.write(tempName+"/"+name, "")
		_ = os.Remove(filepath.Join(o.job, tempName, name))
		for late := time.After(50 * time.Millisecond); ; {
			select {
			case seen := <-o.closed:
				number, isMark := strings.CutPrefix(seen, markPrefix)
				if n, err := strconv.Atoi(number); isMark && err == nil && n >= first {
					return
				}
				continue
			case <-late: // the folder was not observed yet, or the event is late
			}
			break
		}
	}
	o.t.Fatal("the observer has seen nothing")
}

func (o *observing) write(name, text string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.job, name), []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func (o *observing) rename(from, to string) {
	o.t.Helper()
	if err := os.Rename(filepath.Join(o.job, from), filepath.Join(o.job, to)); err != nil {
		o.t.Fatal(err)
	}
}

func (o *observing) run() *programRun {
	o.settle()
	return o.last()
}

func (o *observing) last() *programRun {
	o.recorder.mu.Lock()
	defer o.recorder.mu.Unlock()
	return o.recorder.last("spot_1")
}

func TestObserveRename(t *testing.T) {
	o := observe(t)
	o.write("tmp/new", "whole")
	o.rename("tmp/new", "checkpoint")
	o.rename("checkpoint", "kept/1")
	r := o.run()
	if len(r.Saves) != 1 || r.Saves[0].Size != 5 || r.Saves[0].Began.IsZero() || len(r.InPlace) > 0 || r.Changed {
		t.Errorf("run = %+v, want one checkpoint of 5 bytes, renamed into place", r)
	}
}

func TestObserveFolder(t *testing.T) {
	o := observe(t)
	if err := os.Mkdir(filepath.Join(o.job, "work/step"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.write("work/step/a", "123")
	o.write("work/step/b", "45")
	o.rename("work/step", "checkpoint")
	o.rename("checkpoint", "kept/1")
	r := o.run()
	if len(r.Saves) != 1 || r.Saves[0].Size != 5 || r.Saves[0].Files != 2 || len(r.InPlace) > 0 {
		t.Errorf("run = %+v, want one checkpoint of two files", r)
	}
	o.write("kept/1/a", "more than that")
	if r := o.run(); !r.Changed {
		t.Error("a file of a folder that was put in place has changed, and that was not seen")
	}
}

func TestObserveInPlace(t *testing.T) {
	o := observe(t)
	o.write("checkpoint", "half")
	o.rename("checkpoint", "kept/1")
	o.write("result", "half")
	if r := o.run(); !r.InPlace["checkpoint"] || !r.InPlace["result"] || len(r.Saves) != 1 {
		t.Errorf("run = %+v, want checkpoint and result written in place", r)
	}
}

func TestObserveChangeAfterRename(t *testing.T) {
	o := observe(t)
	o.write("tmp/new", "a")
	o.rename("tmp/new", "checkpoint")
	o.write("checkpoint", "b")
	if r := o.run(); !r.Changed || r.InPlace["checkpoint"] {
		t.Errorf("run = %+v, want a checkpoint that was changed in its place", r)
	}
}

func TestObserveUnfinished(t *testing.T) {
	o := observe(t)
	for range 3 {
		o.write("tmp/new", "a")
		o.rename("tmp/new", "checkpoint")
		o.rename("checkpoint", "kept/1")
	}
	o.write("tmp/other", "not a checkpoint")
	o.settle()
	o.recorder.gone("spot_1", time.Now())
	if r := o.last(); !r.Saving.IsZero() {
		t.Errorf("saving = %v, want no checkpoint in the making", r.Saving)
	}
	o = observe(t)
	o.write("tmp/new", "a")
	o.rename("tmp/new", "checkpoint")
	o.write("tmp/new", "b")
	o.settle()
	o.recorder.gone("spot_1", time.Now())
	if r := o.last(); r.Saving.IsZero() {
		t.Error("a checkpoint in the making was not seen")
	}
}

func TestObserveProgress(t *testing.T) {
	o := observe(t)
	o.write("progress", `{"fraction": 0.25}`+"\n"+`{"fraction": 0.5}`+"\n"+`{"fracti`)
	if r := o.run(); r.Fraction != 0.5 || r.Reports == 0 || r.FirstSign.IsZero() {
		t.Errorf("run = %+v, want the last whole line", r)
	}
}
