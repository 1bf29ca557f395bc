package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errKilled is the error of a criu that did not end within its deadline, while it may have
// been changing processes of the program.
var errKilled = errors.New("criu was killed")

// exitError is the error of a criu that ended with an error.
type exitError struct{ status syscall.WaitStatus }

func (e *exitError) Error() string {
	if e.status.Signaled() {
		return "criu was ended by " + unix.SignalName(e.status.Signal())
	}
	return fmt.Sprintf("criu ended with exit code %d", e.status.ExitStatus())
}

// criuCapabilities are the capabilities of criu, over the namespaces of the program alone.
var criuCapabilities = []uintptr{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP}

// criuEnvironment is the environment of criu: nothing of the program's.
//
// By CRIU_FAULT=130 (FI_NO_BREAKPOINTS of criu's fault-injection.h) criu stops processes at
// system calls. Otherwise it sets hardware breakpoints, which some hypervisors do not virtualize
// on AMD processors: criu then waits for ever for a process that has passed its breakpoint
// (checkpoint-restore/criu issue 2658; versions after 4.1 find that out themselves).
var criuEnvironment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "CRIU_FAULT=130"}

// maxPrinted bounds the output of criu that is kept, in bytes.
const maxPrinted = 64 << 10

// criu calls criu in a folder and returns its output. Files follow its standard files. It is
// killed after limit.
func (p *initProcess) criu(limit time.Duration, dir string, files []*os.File, args ...string) (printed []byte, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	out, err := unix.MemfdCreate("criu", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	output := os.NewFile(uintptr(out), "criu")
	defer func() { _ = output.Close() }()
	pid, ended, err := p.processes.start(p.config.CRIU, append([]string{"criu"}, args...), &os.ProcAttr{
		Dir: dir, Env: criuEnvironment, Files: append([]*os.File{null, output, output}, files...),
		Sys: &syscall.SysProcAttr{Setsid: true},
	}, criuCapabilities...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.config.CRIU, err)
	}
	p.tool.Store(int64(pid))
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case status := <-ended:
		if status != 0 {
			err = &exitError{status}
		}
	case <-timer.C:
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-ended
		err = fmt.Errorf("%w: it had not ended after %s", errKilled, limit.Round(time.Millisecond))
	}
	buffer := make([]byte, maxPrinted)
	n, _ := output.ReadAt(buffer, 0)
	return buffer[:n], err
}

// hook is the script that criu calls while the program is frozen and its memory is written. It
// waits for the init, by the pipes with these descriptors of the init. An exit code other than 0
// lets the program continue.
const hook = `#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
echo frozen >/proc/1/fd/%d && read -r answer </proc/1/fd/%d && [ "$answer" = yes ]
`

// ghostLimit is the largest deleted file that an image holds, in bytes.
const ghostLimit = 1 << 30

// hookCall is one call of criu's hook. The script has criu's capabilities, so it is no file that the
// program, whose user is criu's, could replace: the script, sealed, and its pipes are open in the
// init alone, into which criu may look and the program may not.
type hookCall struct {
	script, says, hears *os.File // of the script
	frozen, goOn        *os.File
	done                chan struct{}

	called bool  // after done
	failed error // of whileFrozen, after done
}

func newHook() (h *hookCall, err error) {
	h = &hookCall{done: make(chan struct{})}
	if h.frozen, h.says, err = os.Pipe(); err != nil {
		return nil, err
	}
	if h.hears, h.goOn, err = os.Pipe(); err == nil {
		h.script, err = sealedScript(fmt.Sprintf(hook, h.says.Fd(), h.hears.Fd()))
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// path is the script as criu sees it.
func (h *hookCall) path() string { return fmt.Sprintf("/proc/1/fd/%d", h.script.Fd()) }

// sealedScript returns a script that nobody can change.
func sealedScript(text string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("hook", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("hook", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "hook")
	_, err = file.WriteString(text)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the hook for criu: %w", err), file.Close())
	}
	return file, nil
}

// serve waits for the script, and calls whileFrozen while it waits. With yields, an error of it
// makes criu fail.
func (h *hookCall) serve(yields bool, whileFrozen func() error) {
	defer close(h.done)
	if _, err := h.frozen.Read(make([]byte, 16)); err != nil {
		return
	}
	h.called = true
	answer := "yes\n"
	if h.failed = whileFrozen(); h.failed != nil && yields {
		answer = "no\n"
	}
	_, _ = h.goOn.WriteString(answer)
}

// finish ends serve, once criu has ended.
func (h *hookCall) finish() {
	_ = h.frozen.SetReadDeadline(time.Now())
	<-h.done
}

func (h *hookCall) close() {
	for _, file := range []*os.File{h.script, h.says, h.hears, h.frozen, h.goOn} {
		_ = file.Close() // of nil too
	}
}

// dump freezes the program, writes its memory to dir, and calls whileFrozen. After an error
// the program continues, except with errKilled. criu leaves a program that continues stopped, so
// that no thread notices that the freeze has interrupted its system call.
func (p *initProcess) dump(r request, dir string, whileFrozen func() error) (frozen time.Duration, err error) {
	h, err := newHook()
	if err != nil {
		return 0, err
	}
	defer h.close()
	begun := time.Now()
	threads := &frozenThreads{waits: p.waits.look()}
	names, err := p.nameDeleted()
	if err != nil {
		return time.Since(begun), err
	}
	defer names.remove()
	threads.held = names.stopped
	images := filepath.Join(dir, imagesName)
	args := []string{"dump", "--unprivileged", "--tree", strconv.Itoa(p.root), "--images-dir", images, "--log-file", "dump.log", "-v1",
		"--manage-cgroups=ignore", "--file-locks", "--ghost-limit", strconv.Itoa(ghostLimit), "--action-script", h.path()}
	for _, part := range folderParts { // for watched files
		args = append(args, "--irmap-scan-path", filepath.Join(Place, part))
	}
	if !r.Last {
		args = append(args, "--leave-stopped")
	}
	go h.serve(r.Last, func() error {
		names.remove()
		if err := threads.repair(images); err != nil {
			return err
		}
		return whileFrozen()
	})
	_, err = p.criu(r.Limit, images, nil, args...)
	h.finish()
	switch {
	case err != nil:
		names.remove()
		err = errors.Join(err, resume(threads.held))
	case !r.Last:
		err = threads.resume(p.processes)
	}
	frozen = time.Since(begun)
	log := readLog(filepath.Join(images, "dump.log"))
	p.deletes = p.deletes || bytes.Contains(log, []byte(deleted+"]"))
	switch {
	case errors.Is(err, errKilled):
		return frozen, err
	case h.failed != nil:
		return frozen, h.failed
	case err != nil:
		return frozen, refusal("dump", log, err)
	case !h.called:
		return frozen, fmt.Errorf("%w: it did not call its hook", errKilled)
	}
	return frozen, os.Remove(filepath.Join(images, "dump.log"))
}

// refusal returns the error of a criu that ended with an error.
func refusal(verb string, log []byte, err error) error {
	if _, ok := errors.AsType[*exitError](err); !ok {
		return err
	}
	if len(bytes.TrimSpace(log)) == 0 {
		return &RefusedError{Reason: fmt.Sprintf("criu %s: %v, without a log", verb, err)}
	}
	return explain(verb, log)
}

// resume restores the processes of the program.
func (p *initProcess) resume(r request, images string) error {
	args := []string{"restore", "--unprivileged", "--images-dir", images, "--log-file", "restore.log", "-v1", "--manage-cgroups=ignore",
		"--file-locks", "--restore-detached", "--restore-sibling",
		"--inherit-fd", fmt.Sprintf("fd[3]:pipe:[%d]", r.Meta.Stdout),
		"--inherit-fd", fmt.Sprintf("fd[4]:pipe:[%d]", r.Meta.Stderr)}
	_, err := p.criu(r.Limit, images, p.output.writers[:], args...)
	if err != nil {
		return refusal("restore", readLog(filepath.Join(images, "restore.log")), err)
	}
	return nil
}
