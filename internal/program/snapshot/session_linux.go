package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/internal/program/tree"
)

// ErrLost is the error of a program that was ended because criu had to be killed.
var ErrLost = errors.New("criu did not end in time and was killed; the program was ended with it")

// Config describes the program of a session.
type Config struct {
	CRIU   string // path of criu, of [Check]
	Job    string // the job's folder
	Inputs string // the folder of input files; empty for none

	// Restored is the name of an unpacked snapshot in the job's folder, and Meta describes
	// it. Empty for a program that starts.
	Restored string
	Meta     *Meta

	// Limit is the longest time of a call of criu. Default: 2 min, and 5 min for a restore.
	Limit time.Duration
}

// Session is the connection to the init of one program. Its methods may be called by
// several goroutines; one request follows the other.
type Session struct {
	config  Config
	program request

	mu      sync.Mutex
	conn    *os.File
	theirs  *os.File
	answers *io.LimitedReader // an init that was taken over must not fill the worker's memory
	in      *json.Decoder
}

// NewSession changes a command that is not started yet, so that an init in namespaces of its
// own starts it. After the start of the command call Begin; call Close in any case.
func NewSession(c Config, cmd *exec.Cmd) (*Session, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	s := &Session{config: c, conn: os.NewFile(uintptr(pair[0]), "init"), theirs: os.NewFile(uintptr(pair[1]), "worker")}
	s.answers = &io.LimitedReader{R: s.conn}
	s.in = json.NewDecoder(s.answers)
	s.program = request{Verb: verbStart, Path: cmd.Path, Args: cmd.Args, Work: cmd.Dir}
	tree.InNamespaces(cmd, initName)
	cmd.Stdin, cmd.Dir = s.theirs, c.Job
	return s, nil
}

// Bounds of requests.
const (
	startLimit   = 30 * time.Second
	restoreLimit = 5 * time.Minute
	takeLimit    = 2 * time.Minute
	replyReserve = 5 * time.Second // from the end of criu to the reply
	maxReply     = 1 << 20         // bytes
)

// Begin starts or restores the program. Errors are a [*RefusedError], a syscall error of the
// start, and errors of the machine.
func (s *Session) Begin(ctx context.Context) error {
	_ = s.theirs.Close()
	r := s.program
	r.Job, r.Inputs, r.CRIU, r.Limit = s.config.Job, s.config.Inputs, s.config.CRIU, startLimit
	if s.config.Restored != "" {
		r.Verb, r.Name, r.Meta, r.Limit = verbRestore, s.config.Restored, s.config.Meta, restoreLimit
	}
	r.Limit = cmp.Or(s.config.Limit, r.Limit)
	_, err := s.do(ctx, r)
	return err
}

// Take makes a snapshot in the job's folder and returns how long the program was frozen.
// last ends the program with it. The errors: a [*RefusedError], after which the program
// continues, also for last; [ErrLost]; others mean that the program has ended.
func (s *Session) Take(ctx context.Context, name string, last bool) (frozen time.Duration, err error) {
	limit := cmp.Or(s.config.Limit, takeLimit)
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	answer, err := s.do(ctx, request{Verb: verbTake, Name: name, Last: last, Limit: limit})
	return answer.Frozen, err
}

// startGrace is how long the start of a program may still take when its job has to stop: a
// program that has started can be frozen.
const startGrace = time.Second

// do sends a request and waits for its reply. When ctx ends, it closes the connection, with
// which the init and the program end.
func (s *Session) do(ctx context.Context, r request) (answer reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetDeadline(time.Now().Add(r.Limit + replyReserve)); err != nil {
		return answer, err
	}
	s.answers.N = maxReply
	stop := context.AfterFunc(ctx, func() {
		late := time.Now()
		if r.Verb == verbStart {
			late = late.Add(startGrace)
		}
		_ = s.conn.SetDeadline(late)
	})
	defer stop()
	if err = json.NewEncoder(s.conn).Encode(r); err == nil {
		err = s.in.Decode(&answer)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return answer, errEnded
	case err != nil:
		_ = s.conn.Close() // a later reply would answer another request
		return answer, fmt.Errorf("%s: no reply: %w", r.Verb, err)
	case answer.Lost:
		return answer, fmt.Errorf("%w (%s)", ErrLost, answer.Error)
	case len(answer.Differences) > 0:
		return answer, &machine.MismatchError{Differences: answer.Differences}
	case answer.Refused:
		return answer, &RefusedError{Reason: answer.Error, Known: answer.Known}
	case answer.Errno != 0:
		return answer, &os.PathError{Op: "fork/exec", Path: r.Path, Err: syscall.Errno(answer.Errno)}
	case answer.Error != "":
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// errEnded is the error of a request to a program that has ended.
var errEnded = errors.New("the program has ended")

// Close ends the connection, and the program if it still runs.
func (s *Session) Close() { _ = errors.Join(s.conn.Close(), s.theirs.Close()) }
