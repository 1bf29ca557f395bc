package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/ownfiles"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// setSnapshot reads how a program is frozen.
func (k *parsedKind) setSnapshot(v jsonpos.Value) error {
	switch v.Data {
	case "criu", "criu-at-stop":
		k.Snapshot, k.SnapshotAtStop = true, v.Data == "criu-at-stop"
		return nil
	}
	return v.Errorf(`give "criu" or "criu-at-stop", or leave it out for a program that saves its own state`)
}

// checkSnapshot returns an error for settings that contradict a snapshot.
func (k *parsedKind) checkSnapshot(v jsonpos.Value) error {
	if !k.Snapshot {
		return nil
	}
	for name, set := range map[string]bool{
		"resume_command": len(k.ResumeCommand) > 0, "checkpoint_files": len(k.CheckpointFiles) > 0, "stop_signal": k.StopSignal != 0,
		"directory": k.Directory != "", "max_silence": k.Limits.MaxSilence > 0, "tokens": len(k.Tokens) > 0,
		"outputs.stream": k.Outputs != nil && k.Outputs.Stream, "outputs.restore": k.Outputs != nil && k.Outputs.List,
	} {
		if set {
			return v.Errorf("%s has no use with snapshot, since the program is frozen and continued: leave one of both out", name)
		}
	}
	if k.Outputs != nil && len(k.Outputs.From) == 0 {
		return v.Errorf(`with snapshot, outputs takes "from": patterns for the files in the working folder that are the outputs`)
	}
	return nil
}

// CheckSnapshots returns an error if a kind asks for snapshots and this machine cannot take
// them, and otherwise sets the machine of such kinds. Without one it does nothing.
func CheckSnapshots(ctx context.Context, kinds []Kind, folders *scratch.Root) error {
	var here machine.Facts
	for i := range kinds {
		k := &kinds[i]
		if !k.Snapshot {
			continue
		}
		if here == (machine.Facts{}) {
			var err error
			if here, err = checkMachine(ctx, folders); err != nil {
				return fmt.Errorf("kind %s asks for snapshots: %w", k.Name, err)
			}
		}
		k.Machine = here
	}
	return nil
}

// MayPass reports whether the error of a check at a worker's start is no refusal: the next start
// may succeed.
func MayPass(err error) bool { return resource.IsExhaustion(err) || errors.Is(err, snapshot.ErrLost) }

func checkMachine(ctx context.Context, folders *scratch.Root) (here machine.Facts, err error) {
	criu, err := snapshot.Find()
	if err != nil {
		return here, err
	}
	f, err := folders.NewFolder()
	if err != nil {
		return here, err
	}
	here, err = snapshot.Check(ctx, criu, f.Dir, f.User)
	return here, errors.Join(err, folders.Remove(f))
}

// noSnapshots is the offer of a kind without snapshots. It tells workers from those of older
// versions, which offer nothing.
const noSnapshots = "-"

// Offer is the first word of the needs of snapshots that this machine takes.
func (h *Handler) Offer() string {
	switch {
	case !h.kind.Snapshot:
		return noSnapshots
	case h.kind.Machine == (machine.Facts{}):
		return ""
	}
	return h.kind.Machine.Offer()
}

// CheckNeeds returns an error if a snapshot with these needs cannot be restored here. For a kind
// without snapshots that is any snapshot: while an update of the kinds file spreads, only some
// workers take snapshots, and the job would fail on the others.
func (h *Handler) CheckNeeds(needs string) error {
	switch {
	case !h.kind.Snapshot:
		return errors.New("its state is a snapshot of the program, and this worker takes none (snapshot in the kinds file)")
	case h.kind.Machine == (machine.Facts{}):
		return nil // not checked
	}
	return h.unfit.check(needs, func() error { return h.kind.Machine.CheckNeeds(needs, &h.hashes) })
}

// unfit remembers needs of snapshots that did not fit although their check passed: needs have
// no room for every library. The zero value is empty.
type unfit struct {
	mu    sync.Mutex
	until map[string]unfitError
}

type unfitError struct {
	error
	until time.Time
}

// Bounds of unfit.
const (
	unfitFor  = time.Hour
	unfitMost = 1000
)

// check returns the remembered error for needs, or the result of try.
func (u *unfit) check(needs string, try func() error) error {
	u.mu.Lock()
	known, ok := u.until[needs]
	u.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.error
	}
	return try()
}

// add remembers the error of a snapshot with these needs.
func (u *unfit) add(needs string, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until == nil || len(u.until) >= unfitMost {
		u.until = map[string]unfitError{}
	}
	u.until[needs] = unfitError{why, time.Now().Add(unfitFor)}
}

// asSeen returns the folder with the paths that the program sees.
func (f *folder) asSeen() *folder {
	if f.place == "" {
		return f
	}
	seen := *f
	for _, path := range []*string{&seen.work, &seen.temp, &seen.payload, &seen.result, &seen.progress, &seen.stop} {
		*path = f.place + strings.TrimPrefix(*path, f.Dir)
	}
	if f.inputs != "" {
		seen.inputs = filepath.Join(f.place, ownfiles.Inputs)
	}
	return &seen
}

// restoredName is the name of an unpacked snapshot in the job's folder.
const restoredName = "restored"

// unpackSnapshot restores the files of a snapshot. Its images stay in a folder of their own.
func (f *folder) unpackSnapshot(state io.Reader) error {
	dir := filepath.Join(f.Dir, restoredName)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	err := archive.Extract(state, dir, archive.Limits{Bytes: job.MaxStream, Entries: maxEntries, Names: maxNames})
	if err != nil {
		return err
	}
	if f.frozen, err = snapshot.ReadMeta(dir); err != nil {
		return err
	}
	if err := f.frozen.CheckImages(dir); err != nil {
		return err
	}
	return snapshot.Unpack(dir, f.Dir)
}

// firstSnapshot is when the first snapshot is taken at the latest, so that a program that
// cannot be frozen is found early.
const firstSnapshot = 2 * time.Second

// workShare is how many times longer a program works at least than it is frozen.
const workShare = 9

// lastTries is how often the last snapshot of a run is tried.
const lastTries = 3

// snapshots makes checkpoints of a program by freezing it. Nil does nothing.
type snapshots struct {
	run     *programRun
	session *snapshot.Session
	ctx     context.Context // of snapshots while the program runs
	cancel  context.CancelFunc
	passes  sync.WaitGroup

	atStop bool // none while the program runs

	number int
	next   time.Time // when the next one is due
	cost   time.Duration

	mu     sync.Mutex
	busy   bool
	ready  string // a complete snapshot that is not collected yet
	has    bool   // the program has a snapshot
	fault  error  // why the job cannot continue
	warned string
}

// openSnapshots changes the command of a kind whose program is frozen, before its start.
func openSnapshots(k *Kind, r *programRun, command *exec.Cmd) (*snapshots, error) {
	if !k.Snapshot {
		return nil, nil
	}
	criu, err := snapshot.Find()
	if err != nil {
		return nil, err
	}
	f := r.folder
	if err := f.User.Do(f.linkRelative); err != nil {
		return nil, err
	}
	c := snapshot.Config{CRIU: criu, Job: f.Dir, Inputs: f.inputs}
	if f.frozen != nil {
		c.Restored, c.Meta = restoredName, f.frozen
	}
	s := &snapshots{run: r, has: f.frozen != nil, atStop: k.SnapshotAtStop}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.session, err = snapshot.NewSession(c, command)
	return s, err
}

// linkRelative makes the links to inputs and payload in the working folder. Their targets
// are relative, so that they are part of a snapshot.
func (f *folder) linkRelative() error {
	names := []string{ownfiles.Payload}
	if f.inputs != "" {
		names = append(names, ownfiles.Inputs)
	}
	for _, name := range names {
		if err := os.Symlink(filepath.Join("..", name), filepath.Join(f.work, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// begin starts the program, or continues it from its snapshot.
func (s *snapshots) begin(ctx context.Context) error {
	if s == nil {
		return nil
	}
	begun := time.Now()
	if err := s.session.Begin(ctx); err != nil {
		return err
	}
	s.next = time.Now().Add(s.interval())
	if s.run.folder.frozen != nil {
		s.run.log.InfoContext(ctx, "program continues from its snapshot", "took", time.Since(begun))
	} else if first := time.Now().Add(firstSnapshot); first.Before(s.next) {
		s.next = first
	}
	return nil
}

// interval is the time until the next snapshot, by the policy of checkpoints. The program
// stands still while a snapshot is taken, so that time is a cost of the save.
// A shorter interval than the program is frozen for would leave it no time to work.
func (s *snapshots) interval() time.Duration {
	return max(job.ControlOf(s.run.job).SaveInterval(s.cost), workShare*s.cost)
}

// close ends the connection to the program.
func (s *snapshots) close() {
	if s != nil {
		s.session.Close()
	}
}

// stop waits for the end of a snapshot once the program has ended.
func (s *snapshots) stop() {
	if s != nil {
		s.cancel()
		s.passes.Wait()
	}
}

// takeSnapshot puts a complete snapshot in place as a checkpoint, and begins the next one if
// it is due. An error means that the job cannot continue.
func (r *programRun) takeSnapshot(ctx context.Context) error {
	s := r.snapshots
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	if s.ready != "" {
		if err := removeAny(r.folder.checkpoint); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(r.folder.Dir, s.ready), r.folder.checkpoint); err != nil {
			return err
		}
		s.ready = ""
		return nil
	}
	running := !s.atStop && !r.collector.ended && ctx.Err() == nil && r.stopper.announced.Load() == nil
	if running && !s.busy && !time.Now().Before(s.next) {
		s.busy = true
		s.passes.Go(s.periodic)
	}
	return nil
}

// take takes a snapshot.
func (s *snapshots) take(ctx context.Context, last bool) error {
	s.mu.Lock()
	s.number++
	name := "snapshot-" + strconv.Itoa(s.number)
	s.mu.Unlock()
	frozen, err := s.session.Take(ctx, name, last)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	s.run.log.DebugContext(ctx, "snapshot taken", "took", frozen)
	if s.ready != "" {
		old := filepath.Join(s.run.folder.Dir, s.ready)
		_ = s.run.folder.User.Do(func() error { return removeAny(old) }) // otherwise it goes with the job's folder
	}
	s.ready, s.has, s.cost, s.warned = name, true, frozen, ""
	return nil
}

// periodic takes a snapshot of a program that continues.
func (s *snapshots) periodic() {
	err := s.take(s.ctx, false)
	refused, isRefusal := errors.AsType[*snapshot.RefusedError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || s.ctx.Err() != nil:
	case errors.Is(err, snapshot.ErrLost):
		s.fault = fmt.Errorf("the program could not be frozen: %w", err)
	case isRefusal && refused.Known && !s.has:
		s.fault = job.Permanent(fmt.Errorf("the program cannot be frozen (snapshot of its kind): %w", err))
	case err.Error() != s.warned:
		s.warned = err.Error()
		s.run.log.Warn("no snapshot of the program: the one before stands, and the next is tried later", "error", err)
	}
	s.next, s.busy = time.Now().Add(s.interval()), false
}

// last takes the last snapshot after a stop, with which the program ends. If that fails, it
// kills the program, and the snapshot before stands.
func (s *snapshots) last(ctx context.Context, kill func()) {
	if !keepsState(job.StopOf(ctx)) {
		kill()
		return
	}
	outlive := context.WithoutCancel(ctx)
	for range lastTries {
		err := s.take(outlive, true)
		if err == nil {
			return
		}
		s.run.log.WarnContext(ctx, "no last snapshot of the program; the one before stands", "error", err)
		if refused, again := errors.AsType[*snapshot.RefusedError](err); !again || refused.Known {
			break
		}
	}
	kill()
}

// keepsState reports whether another worker continues the job.
func keepsState(stop *job.Stop) bool {
	return stop == nil || stop.Reason == job.Evicted || stop.Reason == job.Shutdown || stop.Reason == job.Drained
}

// notBegun returns the error of a program that was neither started nor continued. A snapshot
// of another machine is left to a worker there.
func (h *Handler) notBegun(ctx context.Context, r *programRun, err error) error {
	if ctx.Err() != nil { // the stop is why, and not this machine
		return context.Cause(ctx)
	}
	if _, elsewhere := errors.AsType[*machine.MismatchError](err); elsewhere {
		h.unfit.add(r.folder.frozen.Needs(), err)
		return h.backOff(ctx, r.log, err)
	}
	if r.folder.frozen == nil {
		return h.notStarted(ctx, r.log, r.folder, fmt.Errorf("the command cannot be started: %w", err))
	}
	return fmt.Errorf("the program cannot be continued from its snapshot, which stays: %w", err)
}
