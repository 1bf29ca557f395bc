package snapshot

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// output passes on the lines of the program. The pipes are the init's own: criu opens them
// again at a restore, and the worker's pipes may belong to another user.
type output struct {
	readers [2]*os.File
	writers [2]*os.File // of the program; closed once it has them
	inodes  [2]uint64
	done    chan struct{}
}

// openOutput makes the pipes, and begins to pass on their content.
func openOutput() (*output, error) {
	o := &output{done: make(chan struct{}, 2)}
	for i, to := range []*os.File{os.Stdout, os.Stderr} {
		var err error
		if o.readers[i], o.writers[i], err = os.Pipe(); err != nil {
			return nil, err
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(o.writers[i].Fd()), &stat); err != nil {
			return nil, os.NewSyscallError("fstat", err)
		}
		o.inodes[i] = stat.Ino
		go func() {
			_, _ = io.Copy(to, o.readers[i])
			o.done <- struct{}{}
		}()
	}
	return o, nil
}

// given closes this process's ends for writing, once the program has them.
func (o *output) given() { _ = errors.Join(o.writers[0].Close(), o.writers[1].Close()) }

// drainLimit bounds the wait for the rest of the output: a process that the program leaves
// may keep it open.
const drainLimit = 200 * time.Millisecond

// drain waits until everything that an ended program has printed is passed on.
func (o *output) drain() {
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	for range o.readers {
		select {
		case <-o.done:
		case <-timer.C:
			return
		}
	}
}
