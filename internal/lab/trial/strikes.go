package trial

import (
	"context"
	"path/filepath"
	"time"
)

// strike is a way in which a VM is taken from a running program.
type strike string

// The ways.
const (
	notice  strike = "notice"   // an eviction with notice
	stop    strike = "stop"     // the worker is stopped: a notice that comes at once
	kill    strike = "kill"     // the VM dies without notice
	midSave strike = "mid-save" // a stop while a checkpoint is being written
	torn    strike = "torn"     // the VM dies while a checkpoint is being written
	cutOff  strike = "cut off"  // the VM dies just after the stop
)

// order is in which order they come, again and again.
var order = [...]strike{notice, kill, midSave, torn, cutOff, notice}

// strikeFor returns how the nth eviction of a job is done. A program that has saved nothing
// yet is stopped twice, with time to save: a slow machine may have stopped it the first
// time before it could handle SIGTERM. A short program is stopped where a notice would
// come, and so is one that was faster than the first eviction: it could be done before the
// worker's next poll after its first sign.
func (o *observed) strikeFor(n int) strike {
	s := order[n%len(order)]
	switch {
	case o.usual() < tooShort:
		return kill
	case n < 2 && o.savedNothing(),
		(s == notice || s == cutOff) && (o.haste > 0 || o.usual() < firstSign(o.plain[0])+noticeReach):
		return stop
	}
	return s
}

// describe says what happens, for people.
func (s strike) describe() string {
	return map[strike]string{
		notice:  "evicted with notice",
		stop:    "stopped (SIGTERM to the worker)",
		kill:    "killed without notice",
		midSave: "stopped (SIGTERM to the worker) while a checkpoint was being written",
		torn:    "killed while a checkpoint was being written",
		cutOff:  "evicted with notice, and killed just after the stop",
	}[s]
}

// isSudden reports whether the program has no time to save.
func (s strike) isSudden() bool { return s == kill || s == torn || s == cutOff }

const (
	// noticeReach is how long a notice takes at most to stop a program: a worker polls each
	// second.
	noticeReach = 1500 * time.Millisecond

	// noticeLag is how long a notice waits for the worker's next poll, on average.
	noticeLag = 500 * time.Millisecond

	// afterStop is when a VM that is cut off dies, after SIGTERM.
	afterStop = 20 * time.Millisecond

	// savePatience is how long a strike waits for the beginning of a checkpoint.
	savePatience = 3 * time.Second

	// snapshotPatience is the same for a snapshot, which is taken less often.
	snapshotPatience = 10 * time.Second
)

// strike takes a VM from the program. It returns when the VM is gone.
func (t *trial) strike(ctx context.Context, m *machine, s strike) error {
	switch s {
	case kill, stop:
		t.note(m, s)
	case midSave, torn:
		if !t.awaitSave(ctx, m, s) {
			return ctx.Err()
		}
	default:
		id, err := t.rig.local.Metadata.SimulateEviction(m.name)
		if err != nil {
			return err
		}
		defer t.rig.local.Metadata.Complete(id)
		t.await(ctx, func(*course) bool {
			r := t.recorder.last(m.name)
			return r == nil || !r.Stop.IsZero() || !r.Ended.IsZero()
		})
		t.note(m, s)
	}
	switch s {
	case cutOff:
		sleep(ctx, afterStop)
	case midSave, stop:
		m.Terminate() // also where no checkpoint was begun
		t.awaitDrained(ctx, m)
	case notice:
		t.awaitDrained(ctx, m)
	default:
	}
	t.survivors(ctx, m, s)
	t.rig.remove(m)
	return ctx.Err()
}

// awaitDrained waits until the worker has handed over, or its time is up.
func (t *trial) awaitDrained(ctx context.Context, m *machine) {
	ctx, cancel := context.WithTimeout(ctx, 2*LongestGrace+2*time.Second)
	defer cancel()
	t.await(ctx, func(*course) bool { return t.recorder.drained[m.name] })
}

// survivors records the processes that a handed over job has left on the VM.
func (t *trial) survivors(ctx context.Context, m *machine, s strike) {
	if s.isSudden() {
		return
	}
	var now *programRun
	t.recorder.look(func(*course) { now = t.recorder.last(m.name) })
	if now == nil || len(processesOf(m.scratch)) == 0 {
		return
	}
	sleep(ctx, survivorsAfter)
	left := m.sweep()
	t.recorder.see(func() { now.Outlive = left })
}

// note records the strike with the files in the program's folders.
func (t *trial) note(m *machine, s strike) {
	files := map[string]int64{}
	if jobs, _ := filepath.Glob(filepath.Join(m.scratch, "*", jobPrefix+"*")); len(jobs) > 0 {
		files = ownFiles(jobs[len(jobs)-1])
	}
	t.recorder.struck(m.name, s, files, t.rig.outside.files(m.PID()))
}

// awaitSave waits until the program begins to write a checkpoint. Without one it returns
// all the same, after a while. It reports false if the program has ended before.
func (t *trial) awaitSave(ctx context.Context, m *machine, s strike) bool {
	began := make(chan struct{})
	t.recorder.whenSaving(func(vm string) {
		switch { // at once: most checkpoints are written in less than a millisecond
		case vm != m.name:
		case s == torn:
			m.Kill()
		default:
			m.Terminate()
		}
		close(began)
	})
	defer t.recorder.whenSaving(nil)
	ended := make(chan struct{})
	patience := savePatience
	if t.program.snapshot {
		patience = snapshotPatience
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	go func() {
		defer close(ended)
		t.await(waiting, func(c *course) bool {
			r := t.recorder.last(m.name)
			return !c.Ended.IsZero() || r == nil || !r.Ended.IsZero()
		})
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-began:
	case <-ended:
		if waiting.Err() == nil {
			return false
		}
	}
	t.note(m, s)
	return true
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
