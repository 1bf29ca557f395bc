package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/archive"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/job"
)

// smallState is the size up to which a checkpoint is held in memory instead of in a
// file: small states are saved first when time is short.
const smallState = 64 << 10

// errSuperseded is the error of opening a checkpoint after a later one was
// reported.
var errSuperseded = errors.New("a later checkpoint has taken its place")

// collector moves a program's checkpoints out of its reach, so that no checkpoint
// changes while it is read, and keeps the last one as long as it may be read.
type collector struct {
	user    *sandbox.User // whose files they are
	from    string        // where the program writes a checkpoint
	dir     string        // where collected checkpoints are
	limits  archive.Limits
	log     *slog.Logger
	honesty honesty
	frozen  bool // a checkpoint is the snapshot of a frozen program

	number int
	last   *collected

	// torn is a collected checkpoint that was written to while it was read, or whose
	// reading a stop interrupted; empty if there is none. It is read again at each look
	// until it is whole, or there is another.
	torn   string
	unread bool // torn is only unread: the reading was stopped, or another process has a file open
	warned bool // of a torn checkpoint
	many   bool // and a checkpoint with many files

	ended     bool            // the program has, so that this is the last look
	stop      context.Context // with ended: ends when the job is to stop
	killed    bool            // by the worker
	heldLooks int             // looks in a row that found the checkpoint to be open elsewhere
}

// collect returns the state of a new checkpoint, or nil if there is none. The error
// says why the checkpoint cannot be used. When ctx is cancelled, a checkpoint of many files
// is left to the next look.
func (c *collector) collect(ctx context.Context) (*job.Progress, error) {
	if _, err := os.Lstat(c.from); errors.Is(err, fs.ErrNotExist) {
		return c.again(ctx)
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a folder for checkpoints: %w", err)
	}
	name := filepath.Join(c.dir, strconv.Itoa(c.number+1))
	if err := c.whileHeld(func() error { return os.Rename(c.from, name) }); err != nil {
		if c.mayWait(err) {
			return nil, nil // the next look finds it again
		}
		return nil, c.explainHeld(fmt.Errorf("collect the checkpoint: %w", err))
	}
	c.number++
	c.dropTorn()
	return c.take(ctx, name)
}

// again reads a torn checkpoint again. If something still wrote to it when its program
// was killed, it is half a checkpoint, and is given up.
func (c *collector) again(ctx context.Context) (*job.Progress, error) {
	if c.torn == "" && c.last.isTorn() {
		c.warnTorn()
		c.torn, c.unread = c.last.leave(), false
	}
	switch {
	case c.torn == "":
		return nil, nil
	case c.ended && c.killed && !c.unread:
		c.log.WarnContext(ctx, "checkpoint is left out: its program was still writing to it when it was killed; the one before stands")
		c.dropTorn()
		return nil, nil
	}
	return c.take(ctx, c.torn)
}

// take reads a collected checkpoint, which takes the place of the last one.
func (c *collector) take(ctx context.Context, name string) (*job.Progress, error) {
	var state *job.Progress
	var next *collected
	err := c.whileHeld(func() (err error) {
		state, next, err = c.state(ctx, name)
		return err
	})
	if err != nil && (ctx.Err() != nil || c.mayWait(err)) {
		c.torn, c.unread = name, true
		return nil, nil //nolint:nilerr // the next look reads it
	}
	switch {
	case errors.Is(err, archive.ErrChanged):
		c.warnTorn()
		c.torn, c.unread = name, false
		return nil, nil
	case err != nil:
		return nil, c.explainHeld(explainCheckpoint(err))
	}
	c.torn = ""
	c.last.supersede()
	c.last = next
	return state, nil
}

func (c *collector) warnTorn() {
	if !c.warned {
		c.warned = true
		c.log.Warn("checkpoint was written to after it was renamed into place: it is read again later, and the one before stands until then")
	}
}

// dropTorn removes a torn checkpoint.
func (c *collector) dropTorn() {
	if c.torn != "" {
		(&collected{user: c.user, name: c.torn, superseded: true}).removeIfFree()
		c.torn = ""
	}
}

// close ends the use of the last checkpoint, whose files go with the job's folder.
func (c *collector) close() {
	if c.last != nil {
		c.last.leave()
	}
}

// whileHeld calls f, which moves or reads a checkpoint. Only the last look waits for another
// process that has it open, such as a virus scanner: the loop around the program must notice
// a stop.
func (c *collector) whileHeld(f func() error) (err error) {
	if c.ended {
		err = sandbox.AwaitHeld(c.stop, sandbox.HeldLong, f)
	} else {
		err = f()
	}
	if sandbox.IsHeld(err) {
		c.heldLooks++
	} else {
		c.heldLooks = 0
	}
	return err
}

// heldLooks is how many looks in a row may find a checkpoint open in another process. Looks
// are counted, and not time, so that a freeze of the VM does not end the job.
const heldLooks = int(sandbox.HeldLong / pollInterval)

// mayWait reports whether a later look may find a checkpoint that another process has open
// now.
func (c *collector) mayWait(err error) bool {
	return sandbox.IsHeld(err) && !c.ended && c.heldLooks < heldLooks
}

// explainHeld makes an error the machine's if another process has the checkpoint open after
// the program and all that it started have ended.
func (c *collector) explainHeld(err error) error {
	if c.ended {
		return heldElsewhere(err)
	}
	return err
}

// state returns the state of a collected checkpoint. next is the file or folder
// that it is read from, nil if the state is in memory.
func (c *collector) state(ctx context.Context, name string) (state *job.Progress, next *collected, err error) {
	version, source, err := c.inspect(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	next = &collected{user: c.user, name: name, source: source, honesty: &c.honesty, log: c.log}
	needs := ""
	if c.frozen {
		needs = needsOf(name)
	}
	if source.Size() > smallState {
		return &job.Progress{Stream: next.Open, Version: version, Needs: needs}, next, nil
	}
	data, err := readAll(source)
	if err != nil {
		next.leave() // it may be read again
	} else {
		next.supersede()
	}
	return &job.Progress{State: data, Version: version, Needs: needs}, nil, err
}

// maxDescription bounds the description of a snapshot, in bytes.
const maxDescription = 8 << 20

// needsOf returns the needs of a snapshot, empty if they are not known: the program can write
// to the folder.
func needsOf(dir string) string {
	data, err := readSmall(filepath.Join(dir, snapshot.MetaName), maxDescription)
	if err != nil {
		return ""
	}
	meta, err := snapshot.ParseMeta(data)
	if err != nil {
		return ""
	}
	return meta.Needs()
}

// source is the place that the state of a checkpoint is read from.
type source interface {
	Size() int64 // of the state in bytes
	Open() (io.ReadCloser, error)
}

// single is a checkpoint that is a file.
type single struct {
	name string
	info fs.FileInfo // when it was collected
}

func (s *single) Size() int64 { return s.info.Size() }

func (s *single) Open() (io.ReadCloser, error) {
	file, err := scratch.OpenRegular(s.name)
	if err != nil {
		return nil, err
	}
	return archive.OpenFile(file, s.info), nil
}

// inspect returns the version of a collected checkpoint's state, and how to read it.
func (c *collector) inspect(ctx context.Context, name string) (version int, from source, err error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return 0, nil, err
	case info.IsDir():
		index, err := archive.Scan(ctx, name, c.limits)
		if err != nil {
			return 0, nil, err
		}
		c.warnMany(index.Entries())
		index.OpenWith = func(open func() error) error { return sandbox.WhileHeld(sandbox.HeldShort, open) }
		if c.frozen {
			return stateSnapshot, index, nil
		}
		return stateFolder, index, nil
	case !info.Mode().IsRegular():
		return 0, nil, fmt.Errorf("%w: it is neither a file nor a folder", archive.ErrUnfit)
	case info.Size() > c.limits.Bytes:
		return 0, nil, fmt.Errorf("%w: it has %d bytes, of %d allowed", archive.ErrTooLarge, info.Size(), c.limits.Bytes)
	}
	archive.Await(info)
	return stateFile, &single{name: name, info: info}, nil
}

// manyEntries is the share of the files and folders that a checkpoint may have at which its
// owner is warned.
const manyEntries = 0.8

func (c *collector) warnMany(entries int) {
	if !c.many && float64(entries) > manyEntries*float64(c.limits.Entries) {
		c.many = true
		c.log.Warn("checkpoint has nearly as many files and folders as it may have: a job whose checkpoint has more fails permanently",
			"entries", entries, "limit", c.limits.Entries)
	}
}

// explainCheckpoint returns a permanent error for a checkpoint that no further
// attempt can make smaller or valid.
func explainCheckpoint(err error) error {
	if errors.Is(err, archive.ErrTooLarge) || errors.Is(err, archive.ErrUnfit) {
		return job.Permanent(fmt.Errorf("the checkpoint cannot be kept: %w", err))
	}
	return fmt.Errorf("the checkpoint cannot be read: %w", err)
}

func readAll(from source) ([]byte, error) {
	stream, err := from.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(stream)
	if data == nil {
		data = []byte{} // an empty state is a state
	}
	return data, errors.Join(err, stream.Close())
}

// collected is a checkpoint that was collected. It is removed when a later one has
// superseded it and its last reader has closed it.
type collected struct {
	user    *sandbox.User
	name    string
	source  source   // nil for a checkpoint that is only to be removed
	honesty *honesty // of the program
	log     *slog.Logger

	mu         sync.Mutex
	readers    int
	superseded bool
	torn       bool // something wrote to it while it was read
}

// isTorn reports whether something wrote to the checkpoint while it was read.
func (c *collected) isTorn() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.torn
}

// leave gives up the checkpoint without its files, whose name it returns.
func (c *collected) leave() (name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.superseded, c.torn, name, c.name = true, false, c.name, ""
	c.removeIfFree()
	return name
}

// Open opens the checkpoint's state.
func (c *collected) Open() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.superseded {
		return nil, errSuperseded
	}
	var stream io.ReadCloser
	err := c.user.Do(func() error {
		return sandbox.WhileHeld(sandbox.HeldShort, func() (err error) {
			stream, err = c.source.Open()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	c.readers++
	return &collectedReader{stream: stream, of: c, done: sync.OnceFunc(c.readerClosed)}, nil
}

func (c *collected) readerClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers--
	c.removeIfFree()
}

// supersede records that there is a later checkpoint.
func (c *collected) supersede() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.superseded = true
	c.removeIfFree()
}

func (c *collected) removeIfFree() {
	if !c.superseded || c.readers > 0 {
		return
	}
	if c.name != "" {
		// What cannot be removed now is removed with the job's folder.
		_ = c.user.Do(func() error {
			if err := os.Remove(c.name); err == nil {
				return nil
			}
			return sandbox.RemoveTree(c.name)
		})
	}
}

// collectedReader reads a checkpoint with its user's rights, because an archive opens
// its files one by one.
type collectedReader struct {
	stream io.ReadCloser
	of     *collected
	done   func()
}

func (r *collectedReader) Read(p []byte) (n int, err error) {
	err = r.watch(func() (err error) {
		n, err = r.stream.Read(p)
		return err
	})
	return n, err
}

// watch calls a function that reads the checkpoint, and records if it has changed.
func (r *collectedReader) watch(read func() error) error {
	err := r.of.user.Do(read)
	if errors.Is(err, archive.ErrChanged) {
		r.of.mu.Lock()
		r.of.torn = true
		r.of.mu.Unlock()
	}
	return err
}

func (r *collectedReader) Close() error {
	err := r.stream.Close()
	r.done()
	return err
}
