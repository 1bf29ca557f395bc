package snapshot

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rootName is the argument of the executable that makes it the first process of a program.
const rootName = "spotworker-snapshot-root"

// errnoFile is the descriptor of the pipe to which a first process that cannot become the program
// writes the error's number.
const errnoFile = 3

// A process that is started as the first one never gets to its main function, as with the init.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) > 3 && os.Args[1] == rootName {
		os.Exit(becomeProgram(os.Args[2], os.Args[3:]))
	}
}

// becomeProgram replaces this process by the program. The orphans of the program become children of
// this process, not of the init, so that they are in the tree that criu freezes.
func becomeProgram(path string, args []string) int {
	unix.CloseOnExec(errnoFile)
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		err = syscall.Exec(path, args, os.Environ()) //nolint:gosec // from the kinds file
	}
	number := syscall.EINVAL
	_ = errors.As(err, &number)
	_, _ = os.NewFile(errnoFile, "errno").Write([]byte{byte(number)})
	return 1
}

// startProgram starts the program as a child subreaper.
func (p *initProcess) startProgram(path string, args []string, attr *os.ProcAttr) error {
	failed, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = failed.Close() }()
	attr.Files = append(attr.Files, theirs) // errnoFile
	p.root, p.ended, err = p.processes.start("/proc/self/exe", append([]string{rootName, rootName, path}, args...), attr)
	_ = theirs.Close()
	if err != nil {
		return err
	}
	number := make([]byte, 1)
	if n, _ := failed.Read(number); n > 0 {
		return startError(number[0])
	}
	return nil
}
