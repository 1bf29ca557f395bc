package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/ownfiles"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/job"
)

// Versions of a state, which give its format.
const (
	stateFile   = 1 // the checkpoint is a file; the state is its bytes
	stateFolder = 2 // the checkpoint is a folder; the state is an archive of package archive

	// The state is an archive of a frozen program (package snapshot). The number leaves room for
	// formats of folders.
	stateSnapshot = 16
)

// stateVersions returns the versions that a program of the kind can be given.
func (k *Kind) stateVersions() []int {
	if k.Snapshot {
		return []int{stateSnapshot}
	}
	return []int{stateFile, stateFolder}
}

// Limits on the files and folders of a checkpoint: their number, and the length of their
// names in bytes.
const (
	maxEntries = 1_000_000
	maxNames   = 256 << 20
)

// folder is a job's folder and the paths in it. The program gets all of them except
// collected, where its checkpoints are moved.
type folder struct {
	*scratch.Folder

	work, temp                   string
	payload, restore, checkpoint string
	result, progress, stop       string
	collected                    string
	output, sentList             string
	restored, hasSentList        bool
	gpus                         []string // of the job
	versions                     []int    // of states that the program can be given

	// ownFiles are the patterns of the program's own checkpoint files, which are restored to
	// its working folder; empty for a program that keeps to the contract. resumes is whether
	// there is a state for the kind's resume_command.
	ownFiles []string
	resumes  bool

	// frozen is the snapshot that the program continues from; nil for none. place is the path
	// of this folder in the program's namespaces, empty without them.
	frozen *snapshot.Meta
	place  string

	// inputs has the job's input files; empty for a job without inputs.
	inputs string

	// tokenEndpoint serves access tokens to the holder of tokenSecret. Both are empty
	// for a kind without tokens.
	tokenEndpoint, tokenSecret string
}

// newFolder makes a job's folder.
func newFolder(s *scratch.Root, k *Kind) (*folder, error) {
	place, err := s.NewFolder()
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(place.Dir, name) }
	f := &folder{
		Folder: place, work: in("work"), temp: in("tmp"), payload: in("payload"), restore: in("restore"),
		checkpoint: in("checkpoint"), result: in("result"), progress: in("progress"),
		stop: in("stop"), collected: in("kept"),
		sentList: in("sent"),
		ownFiles: k.CheckpointFiles, versions: k.stateVersions(),
	}
	// A folder of its own, and no link to one: programs remove it and make it again, and jobs bring one.
	f.output = filepath.Join(f.work, ownfiles.Output)
	if k.Snapshot {
		f.place, f.output = snapshot.Place, in(ownfiles.Output)
	}
	if err := f.User.Do(f.makeFolders); err != nil {
		return nil, errors.Join(err, s.Remove(place))
	}
	return f, nil
}

func (f *folder) makeFolders() error {
	for _, dir := range f.home() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the program's input: the payload, and the checkpoint to continue from.
func (f *folder) fill(ctx context.Context, j *job.Job) error {
	for name, data := range map[string][]byte{f.payload: j.Payload, f.progress: nil} {
		if err := copyTo(name, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	j.DropPayload() // the program reads the file
	return f.restoreState(ctx, j)
}

// restoreState writes the checkpoint to continue from.
func (f *folder) restoreState(ctx context.Context, j *job.Job) error {
	if err := f.restoreOnce(ctx, j); err != nil {
		return err
	}
	return f.adopt()
}

// isDamaged reports whether no further attempt can restore a checkpoint.
func isDamaged(err error) bool {
	return errors.Is(err, archive.ErrDamaged) || errors.Is(err, archive.ErrTooLarge) || errors.Is(err, snapshot.ErrDamaged)
}

// restoreOnce writes the checkpoint that the job has as its saved state, whose version must
// be a known one.
func (f *folder) restoreOnce(ctx context.Context, j *job.Job) error {
	if err := j.CheckVersion(f.versions...); err != nil {
		return &stateError{err}
	}
	state, version, err := j.OpenSaved()
	if err != nil {
		return &stateError{err}
	}
	if state == nil {
		return nil
	}
	defer func() { _ = state.Close() }()
	if len(f.ownFiles) > 0 && version == stateFile {
		return &stateError{errors.New("the recorded checkpoint is a single file, made without checkpoint_files: " +
			"give all workers the same kinds file, or start the job over with spotctl poison replay --from-scratch")}
	}
	readable := stopWith(ctx, state)
	if version == stateSnapshot {
		return f.unpackSnapshot(readable)
	}
	f.restored = true
	if version == stateFile {
		return copyTo(f.restore, readable)
	}
	if err := os.Mkdir(f.restore, 0o700); err != nil {
		return err
	}
	// Not the kind's limit: lowering it must not lose a job's state.
	return archive.Extract(readable, f.restore, archive.Limits{Bytes: job.MaxStream, Entries: maxEntries, Names: maxNames})
}

// removeAny removes a file or folder, if there is one.
func removeAny(name string) error {
	if err := os.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return sandbox.RemoveTree(name)
}

// copyTo writes a new file. It opens nothing that is already there.
func copyTo(name string, data io.Reader) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, data)
	return errors.Join(err, file.Close())
}

// stoppable is a state whose Read fails once the job is stopped.
type stoppable struct {
	ctx   context.Context
	state io.Reader
}

func (s *stoppable) Read(p []byte) (n int, err error) {
	err = s.try(func() error {
		n, err = s.state.Read(p)
		return err
	})
	return n, err
}

// try makes one read.
func (s *stoppable) try(read func() error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	err := read()
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		err = &stateError{err}
	}
	return err
}

// stoppableRanges is a stoppable whose state is [archive.Ranged] too.
type stoppableRanges struct {
	stoppable
	ranges archive.Ranged
}

// Next implements [archive.Ranged].
func (s *stoppableRanges) Next(most int) (part []byte, err error) {
	err = s.try(func() error {
		part, err = s.ranges.Next(most)
		return err
	})
	return part, err
}

// stopWith returns a state whose reads fail once the job is stopped.
func stopWith(ctx context.Context, state io.Reader) io.Reader {
	s := stoppable{ctx: ctx, state: state}
	if ranges, ok := state.(archive.Ranged); ok {
		return &stoppableRanges{s, ranges}
	}
	return &s
}

// stateError is the error of a recorded state that cannot be read.
type stateError struct{ error }

func (e *stateError) Unwrap() error { return e.error }

// readSmall reads a regular file of a program, of at most limit bytes. It never
// blocks and follows no link.
func readSmall(name string, limit int64) ([]byte, error) {
	file, err := scratch.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &oversize{what: filepath.Base(name), limit: limit}
	}
	return data, err
}

// oversize is the error of a file that is too large.
type oversize struct {
	what  string
	limit int64
}

func (o *oversize) Error() string {
	return fmt.Sprintf("%s has more than %d bytes", o.what, o.limit)
}
