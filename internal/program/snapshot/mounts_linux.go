package snapshot

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountAll makes the view of the machine that a program has: its own processes in /proc, its
// folder at [Place] with the input files in it, and shared memory in its folder, which
// belongs to the snapshot.
func mountAll(job, inputs string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	from, err := os.Open(job) // before a mount hides it
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	var files *os.File
	if inputs != "" {
		if files, err = os.Open(inputs); err != nil {
			return err
		}
		defer func() { _ = files.Close() }()
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc for the program (a container or a sandbox that hides parts of it forbids that): %w", err)
	}
	if err := unix.Mount("tmpfs", filepath.Dir(Place), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount a folder at %s: %w", filepath.Dir(Place), err)
	}
	if err := os.Mkdir(Place, 0o700); err != nil {
		return err
	}
	if err := bind(from, Place); err != nil {
		return err
	}
	if err := unix.Mount("", filepath.Dir(Place), "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", filepath.Dir(Place), err)
	}
	if err := mountSharedMemory(); err != nil {
		return err
	}
	if files != nil {
		to := filepath.Join(Place, "inputs")
		if err := os.Mkdir(to, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
		return bind(files, to)
	}
	return nil
}

// sharedMemory is where POSIX shared memory and semaphores are files.
const sharedMemory = "/dev/shm"

// mountSharedMemory makes the shared memory of the program a part of its folder.
func mountSharedMemory() error {
	if _, err := os.Stat(sharedMemory); err != nil {
		return nil // the machine has none
	}
	dir := filepath.Join(Place, "shm")
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	from, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return bind(from, sharedMemory)
}

func bind(from *os.File, to string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", from.Fd()), to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from.Name(), to, err)
	}
	return nil
}
