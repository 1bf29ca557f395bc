package program

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/ownfiles"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
)

// setCheckpointFiles reads the patterns of a program's own checkpoint files.
func (k *parsedKind) setCheckpointFiles(v jsonpos.Value) (err error) {
	k.CheckpointFiles, err = asPatterns(v)
	return err
}

// asPatterns reads patterns for files in the working folder.
func asPatterns(v jsonpos.Value) ([]string, error) {
	patterns, err := asTexts(v)
	if err == nil && len(patterns) == 0 {
		err = v.Errorf(`give at least one pattern, such as ["md.*"], or leave it out`)
	}
	for _, pattern := range patterns {
		if bad := ownfiles.CheckPattern(pattern); bad != nil {
			return nil, v.Errorf("%v", bad)
		}
	}
	return patterns, err
}

func (k *parsedKind) setStopSignal(v jsonpos.Value) error {
	name, err := asText(v)
	if err != nil {
		return err
	}
	if k.StopSignal, err = tree.ParseSignal(name); err != nil {
		return v.Errorf("%v", err)
	}
	return nil
}

// checkFolder returns an error for patterns in a folder that jobs share.
func (k *parsedKind) checkFolder() error {
	if k.Directory != "" && (len(k.CheckpointFiles) > 0 || k.Outputs != nil && len(k.Outputs.From) > 0) {
		return k.directory.Errorf("jobs share this folder, so checkpoint_files and outputs.from would take files of other jobs: leave it out")
	}
	return nil
}

// adopt makes a restored checkpoint the working folder of a program that has its own
// checkpoint files.
func (f *folder) adopt() error {
	f.resumes = f.restored
	if !f.restored || len(f.ownFiles) == 0 {
		return nil
	}
	if err := removeAny(f.work); err != nil {
		return err
	}
	if err := os.Rename(f.restore, f.work); err != nil {
		return err
	}
	for _, dir := range f.home() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	found, err := ownfiles.Find(f.work, f.ownFiles)
	f.resumes = len(found) > 0
	return err
}

// restoredAt is the place of the restored checkpoint.
func (f *folder) restoredAt() string {
	if len(f.ownFiles) > 0 {
		return f.work
	}
	return f.restore
}

// link makes the links of those names in the working folder. Windows has none for programs
// without a privilege: there the variables alone name the places.
func (f *folder) link(names ...string) error {
	if onWindows {
		return nil
	}
	places := map[string]string{ownfiles.Payload: f.payload}
	if f.inputs != "" {
		places[ownfiles.Inputs] = f.inputs
	}
	for name, place := range places {
		if !slices.Contains(names, name) {
			continue
		}
		to, err := filepath.Rel(f.work, place)
		if err == nil {
			err = os.Symlink(to, filepath.Join(f.work, name))
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// ownFiles makes checkpoints of a program's own files, as the program would that keeps to
// the contract. Nil does nothing.
type ownFiles struct {
	taker  *ownfiles.Taker
	to     string // the folder in which a copy is made
	warned map[string]bool

	copied chan copied        // of the copy that runs now; nil for none
	cancel context.CancelFunc // ends that

	ended  bool // the program has
	unsure bool // and may have been writing then
}

// copied is the end of a copy.
type copied struct {
	ok  bool
	err error
}

// openOwnFiles prepares the working folder of a kind with checkpoint files.
func openOwnFiles(k *Kind, r *programRun) (*ownFiles, error) {
	if len(k.CheckpointFiles) == 0 {
		return nil, nil
	}
	f, o := r.folder, &ownFiles{warned: map[string]bool{}, to: filepath.Join(r.folder.Dir, "copy")}
	if f.restored && !f.resumes {
		r.log.Warn("the recorded checkpoint has no file of this worker's checkpoint_files: the program starts over")
	}
	return o, f.User.Do(func() (err error) {
		if err = f.link(ownfiles.Payload, ownfiles.Inputs); err == nil {
			o.taker, err = ownfiles.New(f.work, k.CheckpointFiles, k.maxCheckpoint())
		}
		return err
	})
}

// programEnded says how the program ended: files that it may have been writing then are
// incomplete.
func (o *ownFiles) programEnded(end ended, stopped bool) {
	if o == nil {
		return
	}
	o.stop()
	o.ended = true
	regular := stopped || end.exit.Code == 0 || end.exit.Code == exitTempFail
	o.unsure = end.killed || end.exit.BySignal() || !regular
}

// stop ends a copy that runs at the same time as the program.
func (o *ownFiles) stop() {
	if o == nil || o.copied == nil {
		return
	}
	o.cancel()
	if c := <-o.copied; c.ok {
		o.taker.Discard()
	}
	o.copied = nil
}

// takeOwnFiles puts a checkpoint of the program's own files in place, if there is a new one.
// An error means that the job cannot continue.
func (r *programRun) takeOwnFiles(ctx context.Context) error {
	o := r.own
	if o == nil {
		return nil
	}
	switch done := o.next(ctx, r, time.Now()); {
	case errors.Is(done.err, archive.ErrTooLarge):
		return explainCheckpoint(done.err)
	case done.err != nil:
		r.warnOwnFiles("the files were not copied", done.err)
	case done.ok:
		if err := os.Rename(o.to, r.folder.checkpoint); err != nil { // the one before is held by another process
			r.warnOwnFiles("the copy was not put in place", err)
		}
	}
	return nil
}

// next returns the end of a copy, if one has ended now, and begins one if it is due.
func (o *ownFiles) next(ctx context.Context, r *programRun, now time.Time) (done copied) {
	switch {
	case o.copied != nil:
		select {
		case done = <-o.copied:
			o.copied = nil
		default:
		}
	case o.ended:
		if done.err = removeAny(o.to); done.err == nil {
			done.ok, done.err = o.taker.Last(now, o.to, o.unsure)
		}
	default:
		var due bool
		due, done.err = o.taker.Look(now)
		done.ok = o.taker.Released
		if due && ctx.Err() == nil && r.stopper.announced.Load() == nil {
			o.begin(ctx, r)
		}
		if log := o.taker.Unnamed(); log != "" {
			r.warnOwnFiles("a database has its last changes in "+log+", which checkpoint_files does not name: name it too", nil)
		}
		if o.taker.NeverStill(now) {
			r.warnOwnFiles("the files of the first pattern change all the time, so that none can be copied while the program runs: have it write "+
				"its checkpoint under another name and rename it, and give that a pattern of its own, as the first", nil)
		}
	}
	return done
}

// begin begins a copy while the program runs, since the loop around the program must notice a stop.
func (o *ownFiles) begin(ctx context.Context, r *programRun) {
	ctx, o.cancel = context.WithCancel(ctx)
	before := r.collector.newest()
	result := make(chan copied, 1)
	o.copied = result
	go func() {
		var c copied
		c.err = r.folder.User.Do(func() (err error) {
			if err = removeAny(o.to); err == nil {
				c.ok, err = o.taker.Copy(ctx, o.to, before)
			}
			if !c.ok && !o.taker.Held { // a part of a copy may have filled the disk, which the program needs
				err = errors.Join(err, removeAny(o.to))
			}
			return err
		})
		result <- c
	}()
}

func (r *programRun) warnOwnFiles(text string, err error) {
	if !r.own.warned[text] {
		r.own.warned[text] = true
		r.log.Warn("checkpoint_files: no new checkpoint; the one before stands", "reason", text, "error", err)
	}
}

// newest returns the folder of the last checkpoint, while it may be read; empty if there is
// none.
func (c *collector) newest() string {
	if c.last == nil || c.torn != "" {
		return ""
	}
	c.last.mu.Lock()
	defer c.last.mu.Unlock()
	if c.last.superseded || filepath.Base(c.last.name) != strconv.Itoa(c.number) {
		return ""
	}
	return c.last.name
}

// moveOutputs moves the files of a finished program that its kind names to the output folder.
func (r *programRun) moveOutputs() error {
	if r.outputs == nil || len(r.outputs.settings.From) == 0 {
		return nil
	}
	f := r.folder
	return f.User.Do(func() error {
		names, err := ownfiles.Find(f.work, r.outputs.settings.From)
		for i := 0; i < len(names) && err == nil; i++ {
			to := filepath.Join(f.output, filepath.FromSlash(names[i]))
			if err = os.MkdirAll(filepath.Dir(to), 0o700); err == nil {
				err = moveFile(filepath.Join(f.work, filepath.FromSlash(names[i])), to)
			}
		}
		return err
	})
}

// moveFile moves a file of a program that has ended, also out of a folder to which the program
// has taken away its own right to write.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(filepath.Dir(from), 0o700) == nil { //nolint:gosec // it is the program's own
		err = os.Rename(from, to)
	}
	return err
}
