//go:build unix

package hook

import (
	"os"
	"os/exec"
	"syscall"
)

// guard runs a program in its process group, which dies when the pipe closes without a line: with
// the worker, however that ends.
const guard = `{ read -r line <&3 || kill -KILL 0; } </dev/null >/dev/null 2>&1 &
exec "$0" 3<&-`

// group has a kill end the command with all processes of its group: those that it started,
// unless they left the group. So does the end of the worker. Call ended after the command.
func group(c *exec.Cmd) (ended func(), err error) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	const shell = "/bin/sh"
	if _, err := os.Stat(shell); err != nil {
		return func() {}, nil //nolint:nilerr // as in an image with the worker alone, which ends with it
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.Path, c.Args, c.ExtraFiles = shell, []string{"sh", "-c", guard, c.Path}, []*os.File{read}
	return func() {
		_, _ = write.WriteString("ended\n") // the guard may be gone
		_, _ = read.Close(), write.Close()
	}, nil
}
