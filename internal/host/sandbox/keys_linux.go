package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// removeKeys empties the user's keyrings of the kernel, which outlive the user's processes: a
// later program with the same user id could read the keys. Where a filter of system calls forbids
// keyctl it does so for programs as well, and nothing is there.
func (u *User) removeKeys() error {
	return u.Do(func() error {
		table, err := os.ReadFile("/proc/keys") // with the keyrings of the thread's file system user
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rings := keyringsOf(string(table), u.id)
		if len(rings) == 0 {
			return nil
		}
		// The persistent keyring obeys only a thread that has it.
		_, _ = unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, int(u.id), unix.KEY_SPEC_THREAD_KEYRING, 0, 0)
		var errs []error
		for _, id := range append(rings, unix.KEY_SPEC_THREAD_KEYRING) {
			switch _, err := unix.KeyctlInt(unix.KEYCTL_CLEAR, id, 0, 0, 0); {
			case err == nil, errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOKEY):
			default:
				errs = append(errs, fmt.Errorf("empty keyring %x of user %d: %w", id, u.id, err))
			}
		}
		return errors.Join(errs...)
	})
}

// keyringsOf returns the ids of the keyrings that the kernel keeps for a user, in a table of keys
// (proc_keys(5)). All others end with the processes that have them.
func keyringsOf(table string, user uint32) (ids []int) {
	const id, kind, name, columns = 0, 7, 8, 9
	number := strconv.FormatUint(uint64(user), 10) + ":"
	kept := []string{"_uid." + number, "_uid_ses." + number, "_persistent." + number}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < columns || fields[kind] != "keyring" || !slices.Contains(kept, fields[name]) {
			continue
		}
		if n, err := strconv.ParseUint(fields[id], 16, 31); err == nil {
			ids = append(ids, int(n))
		}
	}
	return ids
}
