package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/spotworker/spotworker/internal/archive"
	"github.com/spotworker/spotworker/internal/sandbox"
	"github.com/spotworker/spotworker/job"
)

// smallState is up to which size a checkpoint is kept in memory rather than as a
// file: small states are the first to be sent when there is little time.
const smallState = 64 << 10

// errSuperseded is what somebody gets who opens a checkpoint after a later one
// was reported.
var errSuperseded = errors.New("a later checkpoint has taken its place")

// keeper takes a program's checkpoints away, so that what is read is not written
// any more, and keeps the last one for as long as it may be read.
type keeper struct {
	user   *sandbox.User // whose files they are
	from   string        // where the program puts a checkpoint
	dir    string        // where they are kept
	limits archive.Limits

	number int
	last   *kept
}

// take looks for a new checkpoint. It returns the state that it makes, or nil if
// there is none. The error says why one cannot be kept.
func (k *keeper) take() (*job.Progress, error) {
	if _, err := os.Lstat(k.from); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	k.number++
	name := filepath.Join(k.dir, strconv.Itoa(k.number))
	if err := os.Rename(k.from, name); err != nil {
		return nil, fmt.Errorf("take the checkpoint: %w", err)
	}
	state, next, err := k.state(name)
	if err != nil {
		return nil, explainCheckpoint(err)
	}
	k.last.retire()
	k.last = next
	return state, nil
}

// state makes a state of what was taken. next is what it is read from, nil if it
// is in memory.
func (k *keeper) state(name string) (state *job.Progress, next *kept, err error) {
	version, size, open, err := k.look(name)
	if err != nil {
		return nil, nil, err
	}
	next = &kept{user: k.user, name: name, open: open}
	if size > smallState {
		return &job.Progress{Stream: next.Open, Version: version}, next, nil
	}
	data, err := readAll(open)
	next.retire()
	return &job.Progress{State: data, Version: version}, nil, err
}

// look says what was taken, how large it is as a state, and how to read it.
func (k *keeper) look(name string) (version int, size int64, open func() (io.ReadCloser, error), err error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return 0, 0, nil, err
	case info.IsDir():
		index, err := archive.Scan(name, k.limits)
		if err != nil {
			return 0, 0, nil, err
		}
		version := stateFolder
		if index.HasLinks() {
			version = stateLinks
		}
		return version, index.Size(), index.Open, nil
	case !info.Mode().IsRegular():
		return 0, 0, nil, fmt.Errorf("%w: it is neither a file nor a folder", archive.ErrUnfit)
	case info.Size() > k.limits.Bytes:
		return 0, 0, nil, fmt.Errorf("%w: it has %d bytes, of %d allowed", archive.ErrTooLarge, info.Size(), k.limits.Bytes)
	}
	return stateFile, info.Size(), func() (io.ReadCloser, error) { return openRegular(name) }, nil
}

// explainCheckpoint says whether another try of the job could do better.
func explainCheckpoint(err error) error {
	if errors.Is(err, archive.ErrTooLarge) || errors.Is(err, archive.ErrUnfit) {
		return job.Permanent(fmt.Errorf("the checkpoint cannot be kept: %w", err))
	}
	return fmt.Errorf("the checkpoint cannot be read: %w", err)
}

func readAll(open func() (io.ReadCloser, error)) ([]byte, error) {
	stream, err := open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(stream)
	if data == nil {
		data = []byte{} // an empty state is one
	}
	return data, errors.Join(err, stream.Close())
}

// kept is a checkpoint that was taken away. It is removed when a later one has
// taken its place and nobody reads it any more.
type kept struct {
	user *sandbox.User
	name string
	open func() (io.ReadCloser, error)

	mu      sync.Mutex
	readers int
	retired bool
}

// Open opens the checkpoint's state.
func (k *kept) Open() (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.retired {
		return nil, errSuperseded
	}
	var stream io.ReadCloser
	err := k.user.Do(func() (err error) {
		stream, err = k.open()
		return err
	})
	if err != nil {
		return nil, err
	}
	k.readers++
	return &keptReader{stream: stream, user: k.user, done: sync.OnceFunc(k.left)}, nil
}

func (k *kept) left() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readers--
	k.removeIfFree()
}

// retire says that a later checkpoint has taken this one's place.
func (k *kept) retire() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.retired = true
	k.removeIfFree()
}

func (k *kept) removeIfFree() {
	if k.retired && k.readers == 0 {
		// What stays goes with the job's folder.
		_ = k.user.Do(func() error {
			if err := os.Remove(k.name); err == nil {
				return nil
			}
			return sandbox.RemoveTree(k.name)
		})
	}
}

// keptReader reads a checkpoint with its user's rights, since an archive opens its
// files one by one, and tells the checkpoint when it was read.
type keptReader struct {
	stream io.ReadCloser
	user   *sandbox.User
	done   func()
}

func (r *keptReader) Read(p []byte) (n int, err error) {
	err = r.user.Do(func() (err error) {
		n, err = r.stream.Read(p)
		return err
	})
	return n, err
}

func (r *keptReader) Close() error {
	err := r.stream.Close()
	r.done()
	return err
}
