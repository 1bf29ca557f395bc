package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
)

// exitSnapshot is the exit code of an init whose program ended with its last snapshot:
// EX_TEMPFAIL.
const exitSnapshot = 75

// exitLost is the exit code of an init that lost its worker or its program.
const exitLost = 74

// A process that is started as an init never gets to its main function, as with package
// reaper.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 2 && os.Args[1] == initName && os.Getpid() == 1 {
		os.Exit(runInit())
	}
}

// initProcess is PID 1 of a program's namespaces.
type initProcess struct {
	processes *processes
	output    *output
	config    request // the first one
	machine   machine.Facts
	hashes    machine.Hashes
	waits     waits
	deletes   bool   // the program deletes files in its memory
	ahead     Clocks // how far the program's clocks are ahead of the init's

	tool  atomic.Int64            // PID of the last criu
	root  int                     // PID of the program; 0 before its start
	ended chan syscall.WaitStatus // gets its status
	taken bool                    // the last snapshot ended the program
}

func runInit() int {
	// The program gets its environment without the signals that are ignored here.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // the program inherits it: it goes before the worker
	unix.CloseOnExec(0)
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // inherited files of other mounts could not be kept
	p := &initProcess{processes: newProcesses()}
	requests := make(chan request)
	worker := os.Stdin
	go func() {
		defer close(requests)
		for in := json.NewDecoder(worker); ; {
			var r request
			if in.Decode(&r) != nil {
				return
			}
			requests <- r
		}
	}()
	out := json.NewEncoder(worker)
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return exitLost // the worker has ended, or given up the program
			}
			answer := p.answer(r)
			if p.taken {
				p.output.drain()
				_ = out.Encode(answer)
				return exitSnapshot
			}
			if out.Encode(answer) != nil || answer.Lost {
				return exitLost
			}
		case status := <-p.ended:
			p.output.drain()
			return exitCode(status)
		}
	}
}

// exitCode is the code of an init whose program ended so. Shells have the same codes for
// signals.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// answer does a request.
func (p *initProcess) answer(r request) (a reply) {
	var err error
	switch r.Verb {
	case verbStart, verbRestore, verbCheck:
		p.config = r
		if err = p.prepare(); err != nil {
			break
		}
		switch r.Verb {
		case verbStart:
			err = p.start(r)
		case verbRestore:
			err = p.restore(r)
		default:
			a.Machine = &p.machine
			err = p.check(r)
		}
	case verbTake:
		a.Frozen, err = p.take(r)
	default:
		err = fmt.Errorf("unknown request %q", r.Verb)
	}
	if err != nil {
		a.Error = err.Error()
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		a.Refused, a.Known = true, refused.Known
	}
	if other, ok := errors.AsType[*machine.MismatchError](err); ok {
		a.Differences = other.Differences
	}
	if number, ok := errors.AsType[startError](err); ok {
		a.Errno = int(number)
	}
	a.Lost = errors.Is(err, errKilled)
	return a
}

// startError is the error of a program that cannot be started.
type startError syscall.Errno

func (e startError) Error() string { return syscall.Errno(e).Error() }

// prepare makes the mounts and clocks of the program, and asks criu for its version.
func (p *initProcess) prepare() error {
	if err := mountAll(p.config.Job, p.config.Inputs); err != nil {
		return err
	}
	var from *Clocks
	if p.config.Meta != nil {
		from = &p.config.Meta.Clocks
	}
	var err error
	if p.ahead, err = startClocks(from); err != nil {
		return err
	}
	p.waits.look()
	if p.output, err = openOutput(); err != nil {
		return err
	}
	printed, err := p.criu(startLimit, "/", nil, "--version")
	if err != nil {
		return fmt.Errorf("criu --version: %w", err)
	}
	version, err := parseVersion(printed)
	if err != nil {
		return err
	}
	p.machine, err = machine.This(version)
	return err
}

// start starts the program.
func (p *initProcess) start(r request) error {
	if err := setLastPID(firstPID - 1); err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	dir, err := filepath.Rel(r.Job, r.Work)
	if err != nil || !filepath.IsLocal(dir) {
		return fmt.Errorf("working directory %s is not in the job's folder", r.Work)
	}
	path, err := exec.LookPath(r.Path)
	if err != nil {
		path = r.Path
	}
	err = p.startProgram(path, r.Args, &os.ProcAttr{
		Dir: filepath.Join(Place, dir), Env: os.Environ(), Files: []*os.File{null, p.output.writers[0], p.output.writers[1]},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	p.output.given()
	go p.waits.watch()
	return err
}

// setLastPID makes the kernel number the next process in this namespace with a higher id.
func setLastPID(pid int) error {
	const file = "/proc/sys/kernel/ns_last_pid"
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return errors.New("this kernel was built without CONFIG_CHECKPOINT_RESTORE: use one of a distribution")
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o600); err != nil {
		return fmt.Errorf("choose the PIDs of the program: %w", err)
	}
	return nil
}

// take makes a snapshot.
func (p *initProcess) take(r request) (frozen time.Duration, err error) {
	if p.root == 0 {
		return 0, errors.New("no program was started")
	}
	if !filepath.IsLocal(r.Name) {
		return 0, fmt.Errorf("%q is no name of a snapshot", r.Name)
	}
	if err := checkWatches(); err != nil { // before a freeze that fails and interrupts its waits
		return 0, err
	}
	dir := filepath.Join(Place, r.Name)
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Join(dir, imagesName), 0o700); err != nil {
		return 0, err
	}
	m := Meta{
		Format: formatVersion, Root: p.root, Machine: p.machine, Taken: time.Now().UTC(),
		Stdout: p.output.inodes[0], Stderr: p.output.inodes[1],
	}
	var files []string
	frozen, err = p.dump(r, dir, func() error { return p.whileFrozen(r, dir, &m, &files) })
	if err != nil {
		_ = os.RemoveAll(dir)
		return frozen, err
	}
	if r.Last {
		if err := moveParts(dir); err != nil {
			return frozen, fmt.Errorf("%w: %w", errKilled, err)
		}
		p.taken = true
	}
	err = p.describe(dir, &m, files)
	if err != nil && p.taken {
		_ = os.RemoveAll(dir)
	}
	return frozen, err
}

// whileFrozen records the facts of a frozen program, and copies its folder unless it ends.
func (p *initProcess) whileFrozen(r request, dir string, m *Meta, files *[]string) (err error) {
	all, err := programProcesses()
	if err != nil {
		return err
	}
	now, err := readClocks()
	if err != nil {
		return err
	}
	m.Clocks = Clocks{Monotonic: now.Monotonic + p.ahead.Monotonic, Boottime: now.Boottime + p.ahead.Boottime}
	if err := errors.Join(checkOutside(all, int(p.tool.Load())), checkEvents(all)); err != nil {
		return err
	}
	m.LastPID = p.root
	for _, pid := range all {
		m.LastPID = max(m.LastPID, lastThread(pid))
		open, err := openFiles(pid)
		if err != nil {
			return err
		}
		*files = append(*files, open...)
	}
	for _, pid := range all { // after the others: needs may have no room for all
		*files = append(*files, mappedFiles(pid)...)
	}
	if err := checkParts(Place); err != nil || r.Last {
		return err
	}
	return copyParts(dir)
}

// describe completes a snapshot.
func (p *initProcess) describe(dir string, m *Meta, files []string) error {
	seen := map[string]bool{}
	for _, path := range files {
		if seen[path] {
			continue
		}
		seen[path] = true
		file, err := p.hashes.Of(path)
		if err != nil {
			return &RefusedError{Reason: fmt.Sprintf("a file that the program uses cannot be read: %v", err), Known: true}
		}
		m.Files = append(m.Files, file)
	}
	if err := writeAttributes(dir); err != nil {
		return err
	}
	var err error
	if m.Images, err = imagesIn(dir); err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, MetaName), data, 0o600)
}

// restore continues the program from the images of a snapshot, whose files are in the job's
// folder.
func (p *initProcess) restore(r request) error {
	if r.Meta == nil || !filepath.IsLocal(r.Name) {
		return errors.New("nothing to restore")
	}
	if err := r.Meta.Machine.Compare(p.machine); err != nil {
		return err
	}
	if err := p.hashes.Check(r.Meta.Files); err != nil {
		return err
	}
	images := filepath.Join(Place, r.Name, imagesName)
	p.ended = p.processes.expect(r.Meta.Root)
	p.root = r.Meta.Root
	if err := p.resume(r, images); err != nil {
		return err
	}
	p.output.given()
	go p.waits.watch()
	if err := setLastPID(r.Meta.LastPID + 1); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(Place, r.Name))
}

// check asks criu whether the kernel has everything that it needs.
func (p *initProcess) check(r request) error {
	if err := setLastPID(firstPID - 1); err != nil {
		return err
	}
	printed, err := p.criu(r.Limit, "/", nil, "check", "--unprivileged")
	ended, ok := errors.AsType[*exitError](err)
	switch {
	case ok && ended.status.Signaled(): // as for want of memory: it has not said no
		return fmt.Errorf("%w: %w", errKilled, err)
	case ok:
		return explain("check", printed)
	}
	return err
}

// readLog reads the end of a log.
func readLog(name string) []byte {
	const most = 1 << 20
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(file, most))
	return data
}
