// Package reaper is a small process between a worker and the program of a job. It ends
// every process that the program leaves, also outside its process group or session. It is
// the worker's own executable, started again with another name.
//
// The kernel gives the orphans among a subreaper's descendants to the subreaper
// (PR_SET_CHILD_SUBREAPER). A worker that were the subreaper itself could not find the job
// of an orphan; a reaper has one program.
//
// It ends everything when the program has ended, when the worker orders it, and when the
// worker dies: the kernel then closes the pipe with the orders.
package reaper

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// name is the first argument of a process that is a reaper. ps shows it.
const name = "spotworker-reaper"

// Orders of the worker, a byte each.
const (
	orderSignal = 0x80 // and the number of a signal: send that to the program's process group
	orderKill   = 'K'  // end everything
)

// Descriptors of a reaper.
const (
	ordersFD = 3
	wordsFD  = 4
)

// endGrace is how long a reaper tries to end processes that start others all the time.
const endGrace = 5 * time.Second

// A process that is started as a reaper never gets to its main function. A worker, each
// program that embeds one and each test of them are the same executable as their reapers.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) > 1 && os.Args[0] == name {
		os.Exit(reap(os.Args[1:]))
	}
}

// Command changes a command that is not started yet, so that a reaper starts it. Call
// Started after its start, also if that failed.
func Command(cmd *exec.Cmd) (*Reaper, error) {
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	words, theirWords, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirOrders.Close(), orders.Close())
	}
	r := &Reaper{program: cmd.Path, orders: orders, words: bufio.NewReader(words), wordsFile: words,
		theirs: []*os.File{theirOrders, theirWords}}
	cmd.Args = append([]string{name, cmd.Path}, cmd.Args...)
	cmd.Path, cmd.ExtraFiles = "/proc/self/exe", r.theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return r, nil
}

// Bounds of the wait for the words of a reaper. A hostile program of the same user can stop
// the reaper, or keep its end of the pipe open.
const (
	startLimit  = time.Minute // the process and the program in it are started
	statusLimit = time.Second // the reaper has ended: its words are in the pipe
)

// Reaper is a reaper, as its worker sees it.
type Reaper struct {
	program   string
	orders    *os.File
	words     *bufio.Reader
	wordsFile *os.File
	theirs    []*os.File
}

// Started waits until the reaper has started the program. ok is whether the reaper itself
// has been started. On an error the reaper ends.
func (r *Reaper) Started(ok bool) error {
	for _, file := range r.theirs {
		_ = file.Close()
	}
	if !ok {
		r.Close()
		return nil
	}
	word, err := r.word(startLimit)
	failed, isFailure := strings.CutPrefix(strings.TrimSpace(word), "failed ")
	switch {
	case err != nil:
		err = fmt.Errorf("the process that starts the program has ended, or was stopped: %w", err)
	case !isFailure:
		return nil
	default:
		number, _ := strconv.Atoi(failed)
		err = &os.PathError{Op: "fork/exec", Path: r.program, Err: syscall.Errno(number)}
	}
	r.Close()
	return err
}

// word waits for the next line that the reaper writes.
func (r *Reaper) word(limit time.Duration) (string, error) {
	if err := r.wordsFile.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	return r.words.ReadString('\n')
}

// Terminate sends a signal to the program's process group.
func (r *Reaper) Terminate(with syscall.Signal) error { return r.order(orderSignal | byte(with)) }

// Kill ends the program and everything that it started.
func (r *Reaper) Kill() error { return r.order(orderKill) }

func (r *Reaper) order(order byte) error {
	_, err := r.orders.Write([]byte{order})
	return err
}

// Status returns how the program ended, once the reaper has, and how many processes the
// program left. ok is false if the reaper was killed before.
func (r *Reaper) Status() (status syscall.WaitStatus, left int, ok bool) {
	word, err := r.word(statusLimit)
	if err != nil {
		return 0, 0, false
	}
	n := 0
	if found, _ := fmt.Sscanf(word, "ended %d %d\n", &n, &left); found != 2 {
		return 0, 0, false
	}
	return syscall.WaitStatus(n), left, true
}

// Close closes the pipes, at which a reaper ends everything.
func (r *Reaper) Close() { _ = errors.Join(r.orders.Close(), r.wordsFile.Close()) }

// reap starts a program, and ends everything when it is time. The arguments are the path
// and the arguments of the program.
func reap(arguments []string) int {
	runtime.LockOSThread() // the program ends with the thread that started it
	words := os.NewFile(wordsFD, "words")
	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(wordsFD)
	// A service manager may signal every process of a unit. Ignored signals would be ignored
	// by the program too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // the program inherits it: it goes before the worker
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	program := 0
	if err == nil {
		program, err = syscall.ForkExec(arguments[0], arguments[1:], &syscall.ProcAttr{ //nolint:gosec // from the kinds file
			Env: os.Environ(), Files: []uintptr{0, 1, 2},
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		number, _ := errors.AsType[syscall.Errno](err)
		fmt.Fprintf(words, "failed %d\n", int(number))
		return 1
	}
	fmt.Fprintln(words, "started")
	for _, fd := range []int{1, 2} { // the worker reads to the end of the program's output
		_ = syscall.Close(fd)
	}
	go obey(os.NewFile(ordersFD, "orders"), program)
	status, known := wait(program)
	left := end()
	if known {
		fmt.Fprintf(words, "ended %d %d\n", status, left)
	}
	return 0
}

// obey follows the worker's orders. The end of the orders is the end of the worker.
func obey(orders io.Reader, program int) {
	for {
		var order [1]byte
		_, err := io.ReadFull(orders, order[:])
		if err == nil && order[0]&orderSignal != 0 {
			_ = syscall.Kill(-program, syscall.Signal(order[0]&^orderSignal)) // fails if it has ended
			continue
		}
		_ = syscall.Kill(-program, syscall.SIGKILL) // with its end everything else ends
		if err != nil {
			return
		}
	}
}

// wait waits until the program has ended, and reaps orphans until then.
func wait(program int) (status syscall.WaitStatus, known bool) {
	for {
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, false
		case pid == program:
			return status, true
		}
	}
}

// end ends all descendants, and returns how many there were. Orphans become children of this
// process: when it has no child, there are no descendants.
func end() (ended int) {
	killed := map[int]bool{}
	for late := time.Now().Add(endGrace); ; time.Sleep(time.Millisecond) {
		pid, err := 1, error(nil)
		for pid > 0 {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if errors.Is(err, syscall.ECHILD) || time.Now().After(late) {
			return len(killed)
		}
		for _, child := range children(os.Getpid()) {
			killed[child] = true
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
}

// children returns the processes with that parent.
func children(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name in parentheses may have any character.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			all = append(all, pid)
		}
	}
	return all
}
