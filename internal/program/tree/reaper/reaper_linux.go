// Package reaper runs programs below small processes, each of which ends every process that
// its program leaves. Package reap is such a process. It takes one program after another, and
// waits for the next one for a while: its own start costs more than that of most commands.
package reaper

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/tree/reaper/reap"
)

const (
	// startLimit bounds the start of a program, and that of a reaper.
	startLimit = time.Minute

	// lookInterval is how often a running program's reaper is looked at. A hostile program of
	// the same user can kill the reaper and keep its end of the socket open.
	lookInterval = time.Second

	// spareFor is how long a reaper without a program waits for the next one.
	spareFor = 10 * time.Second
)

// Program is a program below a reaper.
type Program struct {
	reaper *reaper
	late   *time.Timer // runs out when the reaper has not obeyed
	whole  bool        // the reaper has told the end: all below it has ended
}

// Exit is how a program ended.
type Exit struct {
	Status syscall.WaitStatus
	Left   int // processes that it left, which were ended
}

// Start starts a command that is not started yet. Its output must be files, its input nothing.
func Start(cmd *exec.Cmd) (*Program, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	files, err := filesOf(cmd)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	for {
		r, isSpare := takeSpare()
		if !isSpare {
			if r, err = begin(); err != nil {
				return nil, err
			}
		}
		word, err := r.start(files)
		failed, isFailure := strings.CutPrefix(word, reap.Failed+" ")
		switch {
		case err != nil && isSpare: // it was killed, or stopped, while it waited
			r.close()
		case err != nil:
			r.close()
			return nil, fmt.Errorf("the process that starts the program has ended, or was stopped: %w", err)
		case isFailure:
			r.keep()
			number, _ := strconv.Atoi(failed)
			return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(number)}
		default:
			return &Program{reaper: r}, nil
		}
	}
}

// filesOf returns the files that a reaper needs for a command: its standard output and error,
// and what it is.
func filesOf(cmd *exec.Cmd) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, file := range files {
				_ = file.Close()
			}
		}
	}()
	for _, to := range []any{cmd.Stdout, cmd.Stderr} {
		var fd int
		if file, ok := to.(*os.File); ok {
			fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		} else {
			fd, err = unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			return files, fmt.Errorf("connect the program's output: %w", err)
		}
		files = append(files, os.NewFile(uintptr(fd), "output"))
	}
	hasNUL := func(s string) bool { return strings.Contains(s, "\x00") }
	if slices.ContainsFunc(cmd.Env, hasNUL) {
		return files, errors.New("environment variable contains NUL")
	}
	words := slices.Concat([]string{cmd.Path, cmd.Dir, strconv.Itoa(len(cmd.Args))}, cmd.Args, cmd.Environ())
	if slices.ContainsFunc(words, hasNUL) {
		return files, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.EINVAL}
	}
	fd, err := unix.MemfdCreate(reap.Name, unix.MFD_CLOEXEC)
	if err != nil {
		return files, fmt.Errorf("describe the program: %w", err)
	}
	command := os.NewFile(uintptr(fd), "command")
	files = append(files, command)
	_, err = command.WriteString(strings.Join(words, "\x00"))
	return files, err
}

// Terminate sends a signal to the program's process group.
func (p *Program) Terminate(with syscall.Signal) error {
	return p.reaper.send(reap.OrderSignal | byte(with))
}

// killGrace is how long a reaper may take to obey. A program may have stopped it, if both
// have the same user.
const killGrace = 10 * time.Second

// Kill ends the program and everything that it started.
func (p *Program) Kill() error {
	if p.late == nil {
		p.late = time.AfterFunc(killGrace, func() { _ = p.reaper.cmd.Process.Kill() }) // with which the program ends
	}
	_ = p.reaper.cmd.Process.Signal(syscall.SIGCONT)
	return p.reaper.send(reap.OrderKill)
}

// Wait waits until the program and everything that it started have ended. ok is false if the
// reaper was killed before.
func (p *Program) Wait() (e Exit, ok bool) {
	word, err := p.reaper.word(0)
	if err != nil {
		return e, false
	}
	found, _ := fmt.Sscanf(word, reap.Ended+" %d %d", &e.Status, &e.Left)
	p.whole = found == 2
	return e, p.whole
}

// Release gives up the program after Wait. No other method may be called at the same time, or
// later.
func (p *Program) Release() {
	if p.late != nil && !p.late.Stop() || !p.whole {
		p.reaper.close()
		return
	}
	p.reaper.keep()
}

// reaper is a reaper, as its worker sees it.
type reaper struct {
	cmd    *exec.Cmd
	socket *os.File
}

// begin starts a reaper.
func begin() (*reaper, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "orders")
	defer func() { _ = theirs.Close() }()
	err = unix.SetNonblock(ends[0], true)
	r := &reaper{socket: os.NewFile(uintptr(ends[0]), "reaper"), cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{reap.Name}, Dir: "/", ExtraFiles: []*os.File{theirs},
		Env:         []string{"GOMAXPROCS=1"}, // not the worker's: a program of the same user can read it
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}}
	if err = cmp.Or(err, r.cmd.Start()); err != nil {
		return nil, errors.Join(err, r.socket.Close())
	}
	return r, nil
}

// start orders the start of a program, and returns what the reaper says.
func (r *reaper) start(files []*os.File) (word string, err error) {
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd())
	}
	conn, err := r.socket.SyscallConn()
	if err != nil {
		return "", err
	}
	sent := conn.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), []byte{reap.OrderStart}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := cmp.Or(sent, err); err != nil {
		return "", err
	}
	return r.word(startLimit)
}

func (r *reaper) send(order byte) error {
	_, err := r.socket.Write([]byte{order})
	return err
}

// errNoWord is the error of a reaper that says nothing in time.
var errNoWord = errors.New("it says nothing")

// word waits for the next word of the reaper, while it is there; 0 is no limit.
func (r *reaper) word(limit time.Duration) (string, error) {
	packet := make([]byte, 64)
	for begun, last := time.Now(), false; ; last = r.hasEnded() {
		if err := r.socket.SetReadDeadline(time.Now().Add(lookInterval)); err != nil {
			return "", err
		}
		n, err := r.socket.Read(packet)
		switch {
		case err == nil:
			return string(packet[:n]), nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return "", err
		case last || limit > 0 && time.Since(begun) >= limit:
			return "", errNoWord
		}
	}
}

// hasEnded reports whether the reaper's process has ended.
func (r *reaper) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, r.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
}

// close ends a reaper, and everything below it.
func (r *reaper) close() {
	_ = r.socket.Close()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// spares are the reapers that wait for a program.
var spares struct {
	sync.Mutex
	list []spare
}

type spare struct {
	*reaper
	end *time.Timer
}

// keep keeps a reaper for the next program.
func (r *reaper) keep() {
	spares.Lock()
	defer spares.Unlock()
	end := time.AfterFunc(spareFor, func() {
		spares.Lock()
		i := slices.IndexFunc(spares.list, func(s spare) bool { return s.reaper == r })
		if i >= 0 {
			spares.list = slices.Delete(spares.list, i, i+1)
		}
		spares.Unlock()
		if i >= 0 {
			r.close()
		}
	})
	spares.list = append(spares.list, spare{r, end})
}

// takeSpare returns a reaper that waits.
func takeSpare() (r *reaper, ok bool) {
	spares.Lock()
	defer spares.Unlock()
	n := len(spares.list) - 1
	if n < 0 {
		return nil, false
	}
	s := spares.list[n] // the last one: the others run out where few are needed
	spares.list = spares.list[:n]
	s.end.Stop()
	return s.reaper, true
}
