package program

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/job"
)

// pollInterval is how often the handler polls for a checkpoint and progress; see
// "Polling, not notification" in the package documentation.
const pollInterval = 250 * time.Millisecond

// programRun is one program that works on one job.
type programRun struct {
	job       *job.Job
	kind      *Kind
	folder    *folder
	program   *tree.Program
	collector collector
	progress  progressFile
	disk      scratch.Watch
	outputs   *outputFolder
	stdout    *stdout // nil for a kind whose result it is not
	log       *slog.Logger

	full error // of reaching the limit of processes

	reported report // the last progress that the program reported
	warned   bool   // the warning about malformed progress was logged

	stopper *stopper // while the program runs

	stopSignal syscall.Signal // 0 for SIGTERM
	own        *ownFiles      // the program's own checkpoint files; nil for a kind without
	snapshots  *snapshots     // of a kind whose program is frozen; nil for others
}

func newRun(j *job.Job, k *Kind, f *folder, output *outputFolder, log *slog.Logger) *programRun {
	return &programRun{
		job: j, kind: k, folder: f, outputs: output, full: k.errFull(), log: log,
		collector: collector{user: f.User, from: f.checkpoint, dir: f.collected, log: log, limits: k.checkpointLimits(),
			frozen: k.Snapshot},
		progress: progressFile{name: f.progress},
		disk:     scratch.Watch{Folder: f.Folder, Limit: k.Disk},

		stopSignal: k.StopSignal,
	}
}

// ended describes how a program ended.
type ended struct {
	exit   tree.Exit
	full   error // the meaning of [tree.Exit.Full]
	killed bool  // this handler sent SIGKILL
	fault  error // why the job cannot continue, such as a checkpoint that is too large

	stderrTail string // the end of its standard error
	oomKills   int64  // processes that the kernel killed while it ran, because memory ran out
}

// supervise polls a running program until it has ended. When ctx is cancelled a stopper
// asks the program to stop, and kills it shortly before the deadline.
func (r *programRun) supervise(ctx context.Context) ended {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	end := ended{full: r.full}
	r.stopper = newStopper(ctx, r)
	defer r.disk.Stop()
	defer r.own.stop()
	defer r.snapshots.stop()
	for {
		select {
		case end.exit = <-r.program.Exited():
			r.stopper.close()
			end.killed = r.stopper.killed.Load()
			r.collector.ended, r.collector.stop, r.collector.killed = true, ctx, end.killed
			r.own.programEnded(end, ctx.Err() != nil)
			if fault := r.poll(ctx); end.fault == nil { // the last poll
				end.fault = fault
			}
			return end
		case <-ticker.C:
			if r.stopper.killed.Load() {
				continue
			}
			if end.fault = r.poll(ctx); end.fault == nil && r.program.IsFull() {
				end.fault = r.full
			}
			if end.fault != nil {
				r.stopper.kill()
			}
		}
	}
}

// poll collects a new checkpoint and the latest progress, and checks the disk
// usage. An error means that the job cannot continue.
func (r *programRun) poll(ctx context.Context) error {
	return r.folder.User.Do(func() error { return r.collect(ctx) })
}

// untilStop returns a context that ends when a stop that the program does not know yet is
// due.
func (r *programRun) untilStop(ctx context.Context) context.Context {
	if r.stopper.announced.Load() == nil && !r.collector.ended {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

func (r *programRun) collect(ctx context.Context) error {
	if err := r.takeOwnFiles(ctx); err != nil {
		return err
	}
	if err := r.takeSnapshot(ctx); err != nil {
		return err
	}
	state, err := r.collector.collect(r.untilStop(ctx))
	if err != nil {
		return err
	}
	r.stdout.look(state != nil)
	last, bad := r.progress.read()
	if bad > 0 && !r.warned {
		r.warned = true
		r.log.WarnContext(ctx, `progress not understood: a line is {"fraction": 0.5, "text": "half of it"}, with a fraction from 0 to 1`,
			"lines", bad)
	}
	if last != nil {
		r.reported = *last
	}
	if state != nil || last != nil {
		if state == nil {
			state = &job.Progress{}
		}
		state.Fraction, state.Text = r.reported.Fraction, r.reported.Text
		r.job.Report(*state)
	}
	if err := r.outputs.look(time.Now()); err != nil {
		return err
	}
	return r.disk.Check(time.Now())
}

// hasResult reports whether the program has written a result.
func (r *programRun) hasResult() bool {
	return r.folder.User.Do(func() error {
		_, err := os.Lstat(r.folder.result)
		return err
	}) == nil
}

// stopFileWait is how long SIGTERM waits for the stop file.
const stopFileWait = 500 * time.Millisecond

// stopper stops a running program when its context is cancelled: it arms the timer of
// SIGKILL, writes the stop file and sends SIGTERM, in that order. It runs beside the loop
// around the program, and neither signal waits for a file: a file system that hangs, or a
// program that replaces its files, delays none of them for more than [stopFileWait].
type stopper struct {
	run    *programRun
	killer *time.Timer
	ended  chan struct{}
	done   sync.WaitGroup

	killed    atomic.Bool               // SIGKILL was sent
	announced atomic.Pointer[time.Time] // deadline that the program was told; nil before a stop
	writing   chan struct{}             // has an element while a stop file is written
}

// newStopper begins to wait for the end of ctx. Its owner calls close.
func newStopper(ctx context.Context, r *programRun) *stopper {
	s := &stopper{run: r, ended: make(chan struct{}), writing: make(chan struct{}, 1)}
	s.killer = time.AfterFunc(time.Hour, s.killLate)
	s.killer.Stop()
	s.done.Go(func() { s.watch(ctx) })
	return s
}

// close gives up the program, which has ended.
func (s *stopper) close() {
	close(s.ended)
	s.done.Wait()
	s.killer.Stop()
}

// kill kills the program.
func (s *stopper) kill() {
	s.killed.Store(true)
	s.run.program.Kill()
}

// killLate kills a program that has not ended in time.
func (s *stopper) killLate() {
	if s.run.snapshots == nil {
		s.run.log.Warn("program did not end after its signal and was killed: its work since the last checkpoint is lost; have it save and " +
			"exit with code 75, or set its stop_signal")
	}
	s.kill()
}

// watch stops the program when ctx is cancelled, and then looks for later notices that
// leave it less time.
func (s *stopper) watch(ctx context.Context) {
	select {
	case <-s.ended:
		return
	case <-ctx.Done():
	}
	s.announce(ctx)
	if s.run.snapshots != nil { // its program is not asked: it is frozen
		s.done.Go(func() { s.run.snapshots.last(ctx, s.kill) })
	} else {
		s.run.program.AskToStop(s.run.stopSignal)
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-ticker.C:
			if stop := job.StopOf(ctx); stop != nil && stop.Deadline.Before(*s.announced.Load()) {
				s.announce(ctx)
			}
		}
	}
}

// announce sets the time of SIGKILL, and tells the program.
func (s *stopper) announce(ctx context.Context) {
	stop := job.StopOf(ctx)
	if stop == nil {
		stop = &job.Stop{Reason: job.Shutdown, Deadline: time.Now()}
	}
	left := time.Until(stop.Deadline)
	left -= reserve(left)
	s.killer.Reset(left)
	s.announced.Store(&stop.Deadline)
	if err := s.write(noteOf(stop, left)); err != nil {
		s.run.log.WarnContext(ctx, "stop file not written; the program gets SIGTERM without it", "error", err)
	}
}

// write writes the stop file, and waits no longer than stopFileWait for it.
func (s *stopper) write(note stopNote) error {
	select {
	case s.writing <- struct{}{}:
	default:
		return errors.New("the one before is still being written")
	}
	written := make(chan error, 1)
	f := s.run.folder
	go func() {
		defer func() { <-s.writing }()
		written <- f.User.Do(func() error { return f.writeStop(note) })
	}()
	timer := time.NewTimer(stopFileWait)
	defer timer.Stop()
	select {
	case err := <-written:
		return err
	case <-timer.C:
		return errors.New("its file system is slow")
	}
}

// writeStop writes the stop file atomically. The file has a new name until then, so that
// nothing that the program put there is opened.
func (f *folder) writeStop(note stopNote) error {
	data, err := json.Marshal(note)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(f.Dir, "stop-*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = sandbox.WhileHeld(stopFileWait, func() error { return os.Rename(file.Name(), f.stop) })
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
