package trial

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// observesFiles reports whether this system tells what happens to files.
const observesFiles = true

// maxWatched is how many folders of one VM are observed.
const maxWatched = 2000

// notifier tells what happens to the files below a folder, with inotify.
type notifier struct {
	root string
	tell func(change)
	file *os.File
	done sync.WaitGroup

	dirs  map[int32]string // by watch: paths below root
	moved map[uint32]string
}

// watchFiles calls tell for each change below a folder, from one goroutine, until stop
// is called.
func watchFiles(root string, tell func(change)) (stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	n := &notifier{root: root, tell: tell, file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}, moved: map[uint32]string{}}
	if err := n.add(""); err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	n.done.Go(n.run)
	return func() {
		_ = n.file.Close() // ends run
		n.done.Wait()
	}, nil
}

// add observes a folder.
func (n *notifier) add(dir string) error {
	if len(n.dirs) >= maxWatched {
		n.tell(change{op: lost})
		return nil
	}
	const what = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_CLOSE_WRITE | unix.IN_CLOSE_NOWRITE | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	var watch int
	raw, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) {
		watch, err = unix.InotifyAddWatch(int(fd), filepath.Join(n.root, dir),
			what)
	}); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	n.dirs[int32(watch)] = dir
	return nil
}

// addNew observes a new folder, and reports the files that it has already.
func (n *notifier) addNew(dir string) {
	if n.add(dir) != nil {
		return // it is gone
	}
	entries, err := os.ReadDir(filepath.Join(n.root, dir))
	if err != nil {
		return
	}
	for _, entry := range entries {
		n.created(filepath.Join(dir, entry.Name()), entry.IsDir())
	}
}

func (n *notifier) created(name string, isDir bool) {
	n.tell(change{op: created, name: name, isDir: isDir})
	if isDir {
		n.addNew(name)
	}
}

func (n *notifier) run() {
	buffer := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buffer)
		if err != nil {
			if !errors.Is(err, fs.ErrClosed) {
				n.tell(change{op: lost})
			}
			return
		}
		for rest := buffer[:size]; len(rest) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
			cookie, length := binary.NativeEndian.Uint32(rest[8:]), binary.NativeEndian.Uint32(rest[12:])
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
			rest = rest[unix.SizeofInotifyEvent+length:]
			n.event(watch, mask, cookie, name)
		}
	}
}

func (n *notifier) event(watch int32, mask, cookie uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.tell(change{op: lost})
		return
	}
	dir, ok := n.dirs[watch]
	if mask&unix.IN_IGNORED != 0 {
		delete(n.dirs, watch)
		return
	}
	if !ok || name == "" {
		return
	}
	name = filepath.Join(dir, name)
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_CREATE != 0:
		n.created(name, isDir)
	case mask&unix.IN_MODIFY != 0:
		n.tell(change{op: modified, name: name})
	case mask&unix.IN_CLOSE_WRITE != 0:
		n.tell(change{op: closed, name: name})
	case mask&unix.IN_CLOSE_NOWRITE != 0:
		if !isDir {
			n.tell(change{op: read, name: name})
		}
	case mask&unix.IN_DELETE != 0:
		n.tell(change{op: removed, name: name, isDir: isDir})
	case mask&unix.IN_MOVED_FROM != 0:
		n.moved = map[uint32]string{cookie: name} // its other half is the next event
	case mask&unix.IN_MOVED_TO != 0:
		from := n.moved[cookie]
		if isDir {
			n.rename(from, name)
		}
		n.tell(change{op: moved, name: name, from: from, isDir: isDir})
		if isDir {
			n.addNew(name) // files moved before they could be observed
		}
	}
}

// rename follows a folder that was moved: its watches move with it.
func (n *notifier) rename(from, to string) {
	for watch, dir := range n.dirs {
		if dir == from || strings.HasPrefix(dir, from+"/") {
			n.dirs[watch] = to + strings.TrimPrefix(dir, from)
		}
	}
}
