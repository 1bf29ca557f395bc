package lab

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// maxLine is the longest log line that is parsed, in bytes.
const maxLine = 1 << 20

// VM is a simulated VM: one worker process.
type VM struct {
	Name    string
	LogFile string

	process *os.Process
	stop    func(*os.Process) error // asks the worker to end
	stopped atomic.Bool             // by the fleet
	ended   chan struct{}           // closed when the process has ended and its log is read
	err     error                   // of the process; read it after ended
}

// start starts the process, and a goroutine that reads its log and waits for it.
func (vm *VM) start(c FleetConfig, args []string, log io.WriteCloser) error {
	// No context: a script decides how and when a worker ends.
	cmd := exec.Command(c.Worker, args...) //nolint:gosec,noctx // the binary was built by us; see above
	cmd.Env = environment(c.ConnectionString)
	Isolate(cmd)
	stop, err := newStop(cmd)
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	vm.process, vm.stop = cmd.Process, stop
	go func() {
		defer close(vm.ended)
		vm.read(stderr, log, c.OnLine)
		vm.err = cmd.Wait()
		if !vm.stopped.Load() && c.OnEnd != nil {
			c.OnEnd(vm, vm.err)
		}
	}()
	return nil
}

// read passes on the log line by line until the process has closed it.
func (vm *VM) read(from io.Reader, log io.WriteCloser, onLine func(string, []byte)) {
	defer log.Close()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		_, _ = log.Write(append(lines.Bytes(), '\n'))
		if onLine != nil {
			onLine(vm.Name, lines.Bytes())
		}
	}
	_, _ = io.Copy(log, from) // the file keeps lines that are too long to parse
}

// Kill kills the worker (SIGKILL), as when a VM vanishes, and returns when it has
// ended and its log is read.
func (vm *VM) Kill() {
	vm.stopped.Store(true)
	_ = vm.process.Kill() // fails only if the process has ended
	<-vm.ended
}

// PID returns the id of the worker's process.
func (vm *VM) PID() int { return vm.process.Pid }

// Freeze suspends the worker (SIGSTOP), as when a host pauses its VM. It returns
// [errors.ErrUnsupported] on systems that cannot do this.
func (vm *VM) Freeze() error { return suspend(vm.process) }

// Thaw resumes a frozen worker (SIGCONT).
func (vm *VM) Thaw() error { return resume(vm.process) }

// Terminate asks the worker, frozen or not, to drain and exit. It does not wait.
func (vm *VM) Terminate() {
	vm.stopped.Store(true)
	_ = vm.stop(vm.process) // fails only if the process has ended
	_ = vm.Thaw()
}

func (vm *VM) hasEnded() bool {
	select {
	case <-vm.ended:
		return true
	default:
		return false
	}
}
