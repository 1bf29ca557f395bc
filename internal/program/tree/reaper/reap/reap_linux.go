// Package reap is a small process between a worker and the program of a job. It ends
// every process that the program leaves, also outside its process group or session. It is
// the worker's own executable, started again with another name. It takes one program after
// another.
//
// The kernel gives the orphans among a subreaper's descendants to the subreaper
// (PR_SET_CHILD_SUBREAPER). A worker that were the subreaper itself could not find the job
// of an orphan; a reaper has one program at a time.
//
// It ends everything when the program has ended, when the worker orders it, and when the
// worker dies: the kernel then closes the socket with the orders.
//
// The process runs in the initialization of this package. Packages are initialized in the
// order of their paths where their imports allow it, so that this one, which imports little,
// comes before most of the worker: each import here costs every command some of its time.
package reap

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Name is the first argument of a process that is a reaper. ps shows it.
const Name = "spotworker-reaper"

// Orders of the worker, a byte each.
const (
	OrderStart  = 'S'  // a program, which three descriptors with it describe
	OrderKill   = 'K'  // end everything
	OrderSignal = 0x80 // and the number of a signal: send that to the program's process group
)

// Words of a reaper.
const (
	started = "started"
	Failed  = "failed" // and the number of the error
	Ended   = "ended"  // the program's status, and how many processes it left
)

// socketFD is the descriptor on which a reaper gets its orders and says its words. Both are
// packets.
const socketFD = 3

// endGrace is how long a reaper tries to end processes that start others all the time.
const endGrace = 5 * time.Second

// setChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const setChildSubreaper = 36

// A process that is started as a reaper never gets to its main function. A worker, each
// program that embeds one and each test of them are the same executable as their reapers.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 1 && os.Args[0] == Name {
		os.Exit(reap())
	}
}

// reap starts programs, one after another, and ends everything when it is time.
func reap() int {
	runtime.LockOSThread() // a program ends with the thread that started it
	syscall.CloseOnExec(socketFD)
	// A service manager may signal every process of a unit. Ignored signals would be ignored
	// by the program too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // the program inherits it: it goes before the worker
	_, _, failed := syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0)
	starts := make(chan []int)
	var program atomic.Int64
	go obey(starts, &program)
	for files := range starts {
		pid, err := 0, error(failed)
		if failed == 0 {
			pid, err = start(files)
		}
		for _, fd := range files { // the worker reads to the end of the program's output
			_ = syscall.Close(fd)
		}
		if err != nil {
			number, _ := errors.AsType[syscall.Errno](err)
			say(Failed, int(number))
			continue
		}
		program.Store(int64(pid))
		say(started)
		status, known := wait(pid)
		program.Store(0)
		left, all := end()
		if !known || !all {
			return 1
		}
		say(Ended, int(status), left)
	}
	return 0
}

// start starts a program. The files are its standard output and error, and its command: path,
// folder, number of arguments, arguments and environment, with a NUL between two.
func start(files []int) (pid int, err error) {
	if len(files) != 3 {
		return 0, syscall.EBADMSG
	}
	var info syscall.Stat_t
	if err := syscall.Fstat(files[2], &info); err != nil {
		return 0, err
	}
	text := make([]byte, info.Size)
	if _, err = syscall.Pread(files[2], text, 0); err != nil { // all of it: the file is memory
		return 0, err
	}
	words := strings.Split(string(text), "\x00")
	n, err := strconv.Atoi(words[2])
	if err != nil {
		return 0, syscall.EBADMSG
	}
	return syscall.ForkExec(words[0], words[3:3+n], &syscall.ProcAttr{ //nolint:gosec // from the kinds file
		Dir: words[1], Env: words[3+n:], Files: []uintptr{0, uintptr(files[0]), uintptr(files[1])},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// say says a word to the worker.
func say(word string, numbers ...int) {
	for _, n := range numbers {
		word += " " + strconv.Itoa(n)
	}
	_, _ = syscall.Write(socketFD, []byte(word)) // without a worker nobody hears it
}

// obey follows the worker's orders. The end of the orders is the end of the worker.
func obey(starts chan<- []int, program *atomic.Int64) {
	order, rights := make([]byte, 1), make([]byte, 64)
	for {
		n, size, _, _, err := syscall.Recvmsg(socketFD, order, rights, syscall.MSG_CMSG_CLOEXEC)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		isEnd := err != nil || n == 0
		if !isEnd && order[0] == OrderStart {
			starts <- received(rights[:size])
			continue
		}
		with := syscall.SIGKILL // with its end everything else ends
		if !isEnd && order[0]&OrderSignal != 0 {
			with = syscall.Signal(order[0] &^ OrderSignal)
		}
		if pid := int(program.Load()); pid > 0 {
			_ = syscall.Kill(-pid, with) // fails if it has ended
		}
		if isEnd {
			close(starts)
			return
		}
	}
}

// received returns the descriptors of a message.
func received(rights []byte) (fds []int) {
	messages, _ := syscall.ParseSocketControlMessage(rights)
	for i := range messages {
		more, _ := syscall.ParseUnixRights(&messages[i])
		fds = append(fds, more...)
	}
	return fds
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

// end ends all descendants, and returns how many there were, and whether all have ended.
// Orphans become children of this process: when it has no child, there are no descendants.
func end() (ended int, all bool) {
	killed := map[int]bool{}
	for late := time.Now().Add(endGrace); ; time.Sleep(time.Millisecond) {
		pid, err := 1, error(nil)
		for pid > 0 {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		if none := errors.Is(err, syscall.ECHILD); none || time.Now().After(late) {
			return len(killed), none
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
