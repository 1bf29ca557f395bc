package lab

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// maxLine bounds one line of a worker's log, in bytes.
const maxLine = 1 << 20

// VM is a pretended VM: one worker process.
type VM struct {
	Name    string
	LogFile string

	process *os.Process
	asked   atomic.Bool   // to end, by us
	ended   chan struct{} // closed when the process ended and its log was read
	err     error         // how; to be read after ended
}

// start starts the process, and a goroutine that reads its log and waits for it.
func (vm *VM) start(c FleetConfig, args []string, log io.WriteCloser) error {
	// No context: how and when a worker ends is the script's to say.
	cmd := exec.Command(c.Worker, args...) //nolint:gosec,noctx // the binary was built by us; see above
	cmd.Env = environment(c.ConnectionString)
	cmd.SysProcAttr = apart()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	vm.process = cmd.Process
	go func() {
		defer close(vm.ended)
		vm.read(stderr, log, c.OnLine)
		vm.err = cmd.Wait()
		if !vm.asked.Load() && c.OnEnd != nil {
			c.OnEnd(vm, vm.err)
		}
	}()
	return nil
}

// read passes the log on, line by line, until the process has closed it.
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
	_, _ = io.Copy(log, from) // a line too long to be understood is kept all the same
}

// Kill ends the worker without a word (SIGKILL), as when a VM vanishes, and
// returns when it has ended and its log was read.
func (vm *VM) Kill() {
	vm.asked.Store(true)
	_ = vm.process.Kill() // fails only if the process has ended
	<-vm.ended
}

// Freeze stops the worker in the middle of whatever it does (SIGSTOP), as when
// a host pauses its VM. The error is [errors.ErrUnsupported] where a system
// cannot do that.
func (vm *VM) Freeze() error { return suspend(vm.process) }

// Thaw lets a frozen worker go on (SIGCONT), as if no time had passed.
func (vm *VM) Thaw() error { return proceed(vm.process) }

// terminate asks the worker to hand over and end, a frozen one too. It does not
// wait.
func (vm *VM) terminate() {
	vm.asked.Store(true)
	_ = vm.process.Signal(syscall.SIGTERM) // fails only if the process has ended
	_ = vm.Thaw()
}

// over reports whether the worker has ended.
func (vm *VM) over() bool {
	select {
	case <-vm.ended:
		return true
	default:
		return false
	}
}
