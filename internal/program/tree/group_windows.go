package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// HasLimits says that the system limits a program's resources.
const HasLimits = true

// Check returns nil: a job object takes any limit.
func (Limits) Check() error { return nil }

// jobObject has all processes of a program, and none can leave it. Windows ends them when
// the worker ends, however it does.
type jobObject struct {
	id  uint32 // of the process group, which gets Ctrl-Break
	job windows.Handle

	most uint32 // processes; 0 for no limit
}

// begin starts a program suspended, puts it into a job object with the limits, and
// resumes it. So no process of it is ever outside.
func begin(cmd *exec.Cmd, l Limits, _ *Groups, _ *sandbox.User) (group, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g, err := newGroup(cmd.Process, l)
	if err != nil {
		return nil, abandon(cmd, err)
	}
	return g, nil
}

func newGroup(p *os.Process, l Limits) (*jobObject, error) {
	job, err := newJobObject(l)
	if err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	g := &jobObject{id: uint32(p.Pid), job: job, most: uint32(l.Tasks)}
	if err := errors.Join(p.WithHandle(func(handle uintptr) {
		err = windows.AssignProcessToJobObject(job, windows.Handle(handle))
	}), err); err != nil {
		return nil, errors.Join(fmt.Errorf("job object: %w", err), windows.CloseHandle(job))
	}
	if err := resume(g.id); err != nil {
		return nil, errors.Join(fmt.Errorf("resume the program: %w", err), windows.CloseHandle(job)) // which ends it
	}
	return g, nil
}

// newJobObject makes a job object. Its processes end when its last handle is closed,
// and without a dialog when they crash.
func newJobObject(l Limits) (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	basic := &limits.BasicLimitInformation
	basic.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
	if l.Memory > 0 {
		basic.LimitFlags |= windows.JOB_OBJECT_LIMIT_PROCESS_MEMORY
		limits.ProcessMemoryLimit = uintptr(l.Memory)
	}
	if l.TotalMemory > 0 {
		basic.LimitFlags |= windows.JOB_OBJECT_LIMIT_JOB_MEMORY
		limits.JobMemoryLimit = uintptr(l.TotalMemory)
	}
	if l.Tasks > 0 {
		basic.LimitFlags |= windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS
		basic.ActiveProcessLimit = uint32(l.Tasks)
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))) //nolint:gosec // as the system call wants it
	if err == nil && l.CPUs > 0 {
		err = limitRate(job, l.CPUs)
	}
	if err != nil {
		return 0, errors.Join(err, windows.CloseHandle(job))
	}
	return job, nil
}

// limitRate bounds how many processors the processes of a job object use at once.
func limitRate(job windows.Handle, cpus float64) error {
	const enable, hardCap, whole = 1, 4, 10_000 // the rate is in hundredths of a percent of all processors
	rate := struct{ flags, rate uint32 }{enable | hardCap, uint32(min(max(cpus/float64(runtime.NumCPU())*whole, 1), whole))}
	_, err := windows.SetInformationJobObject(job, windows.JobObjectCpuRateControlInformation,
		uintptr(unsafe.Pointer(&rate)), uint32(unsafe.Sizeof(rate))) //nolint:gosec // as the system call wants it
	return err
}

// Groups are control groups of Linux: a job object needs none.
type Groups struct{}

// OpenGroups returns nothing, and no error.
func OpenGroups() (*Groups, error) { return nil, nil }

// LimitsMemory returns true.
func (*Groups) LimitsMemory() bool { return true }

// LimitsTasks returns true.
func (*Groups) LimitsTasks() bool { return true }

// LimitsCPUs returns true.
func (*Groups) LimitsCPUs() bool { return true }

// HidesGPUs returns an error.
func (*Groups) HidesGPUs() error { return errors.New("only Linux has control groups") }

// resume resumes the one thread of a process that was started suspended.
func resume(pid uint32) error {
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(threads) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err := windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return errors.New("its thread is not there")
}

// terminate sends Ctrl-Break to the program and to the processes that it started in
// its group. It fails for a program without a console, which has the stop file.
func (g *jobObject) terminate(syscall.Signal) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.id)
}

// killedCode is the exit code of processes that the worker ended.
const killedCode = 1

// kill ends all processes of the program.
func (g *jobObject) kill() error { return windows.TerminateJobObject(g.job, killedCode) }

const (
	// endGrace is how long to wait for the end of killed processes, which hold the
	// job's folder open until then.
	endGrace = 5 * time.Second

	endPoll = 5 * time.Millisecond
)

// release waits for the end of all processes of a killed group.
func (g *jobObject) release() {
	for late := time.Now().Add(endGrace); g.active() > 0 && time.Now().Before(late); {
		time.Sleep(endPoll)
	}
	_ = windows.CloseHandle(g.job)
}

// full reports whether there are as many processes as there may be.
func (g *jobObject) full() bool { return g.most > 0 && g.active() >= g.most }

func (*jobObject) exit(state *os.ProcessState) Exit { return exitOf(state) }

// active returns how many processes have not ended, 0 if that is unknown.
func (g *jobObject) active() uint32 {
	var all struct { // JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
		_               [4]int64 // times
		_, _, active, _ uint32
	}
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&all)), uint32(unsafe.Sizeof(all)), nil) //nolint:gosec // as the system call wants it
	if err != nil {
		return 0
	}
	return all.active
}
