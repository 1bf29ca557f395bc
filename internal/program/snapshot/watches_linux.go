package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// eachWatch calls visit for each inotify descriptor of processes, with the files that it watches.
func eachWatch(pids []int, visit func(pid int, fd string, watched []inode) error) error {
	for _, pid := range pids {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, name := range names {
			if target, err := os.Readlink(name); err != nil || target != "anon_inode:inotify" {
				continue
			}
			fd := filepath.Base(name)
			info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
			var watched []inode
			for line := range strings.Lines(string(info)) {
				var number, device uint64
				var wd int
				if n, _ := fmt.Sscanf(line, "inotify wd:%x ino:%x sdev:%x", &wd, &number, &device); n == 3 {
					const minorBits = 20
					watched = append(watched, inode{fmt.Sprintf("%02x:%02x", device>>minorBits, device&(1<<minorBits-1)), number})
				}
			}
			if err := visit(pid, fd, watched); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWatches returns a [*RefusedError] if the program watches a file outside of the job's folder,
// where criu does not look for it.
func checkWatches() error {
	pids, err := processesInside()
	if err != nil {
		return err
	}
	outside := map[inode]bool{}
	err = eachWatch(pids, func(_ int, _ string, watched []inode) error {
		for _, file := range watched {
			outside[file] = true
		}
		return nil
	})
	if err == nil && len(outside) > 0 {
		err = eachName(func(file inode, _ string) { delete(outside, file) })
	}
	if err == nil && len(outside) > 0 {
		err = &RefusedError{Reason: watchReason, Known: true}
	}
	return err
}

// checkEvents returns a [*RefusedError] if the program has not read events of the files that it
// watches: criu drops them.
func checkEvents(pids []int) error {
	return eachWatch(pids, func(pid int, fd string, _ []inode) error {
		var number int
		_, err := fmt.Sscan(fd, &number)
		if err != nil {
			return err
		}
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return os.NewSyscallError("pidfd_open", err)
		}
		defer func() { _ = unix.Close(process) }()
		here, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			return os.NewSyscallError("pidfd_getfd", err)
		}
		defer func() { _ = unix.Close(here) }()
		if unread, err := unix.IoctlGetInt(here, unix.TIOCINQ); err != nil || unread > 0 {
			return &RefusedError{Reason: "the program has not read all events of the files that it watches (inotify)"}
		}
		return nil
	})
}
