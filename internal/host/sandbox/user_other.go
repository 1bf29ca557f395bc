//go:build !linux

package sandbox

import (
	"net/netip"
	"os"
	"os/exec"
)

func checkRights() error { return ErrUnsupported }

func ownerOf(string) (uint32, bool) { return 0, false }

// Apply does nothing: there are no users here.
func (*User) Apply(*exec.Cmd) error { return nil }

// Do calls f.
func (*User) Do(f func() error) error { return f() }

// RemoveContent is [RemoveContent].
func (*User) RemoveContent(dir string) error { return RemoveContent(dir) }

// MkdirTemp is [os.MkdirTemp].
func (*User) MkdirTemp(parent, pattern string) (string, error) { return os.MkdirTemp(parent, pattern) }

// MkdirReadable is [os.MkdirTemp].
func (*User) MkdirReadable(parent, pattern string) (string, error) {
	return os.MkdirTemp(parent, pattern)
}

// KillAll does nothing.
func (*User) KillAll() error { return nil }

// Clean does nothing.
func (*User) Clean() error { return nil }

// CanReach is not known here.
func (*User) CanReach(netip.AddrPort) (bool, error) { return false, ErrUnsupported }

// HideProcess does nothing: other systems do not show a process's memory and
// environment to programs of the same user in this way.
func HideProcess() error { return nil }
