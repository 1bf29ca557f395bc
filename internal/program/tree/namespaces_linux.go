package tree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// InnerUser is the user and group id of a program in namespaces of its own. No id of a usual
// machine is the same, so that the program finds no foreign home in /etc/passwd.
const InnerUser = 65500

// selfExe is this executable.
const selfExe = "/proc/self/exe"

// mapperName is the first argument of a mapper: the process between the worker and the
// namespaces of a program. The worker hides its memory (sandbox.HideProcess), and the kernel
// then gives the files with the id mappings of a child to root. The mapper hides nothing.
const mapperName = "spotworker-namespaces"

// A process that is started as a mapper never gets to its main function, as with package
// reaper.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 7 && os.Args[1] == mapperName {
		os.Exit(mapUser(os.Args[2:]))
	}
}

// InNamespaces changes a command of [NewCommand], so that [Start] starts this executable with
// the argument name in its place, in a user, PID and mount namespace of its own. There
// [InnerUser] is the only user: the program's, or the worker's. The process gets the
// capabilities that it needs as an init of the namespaces, over them alone. Where it ends,
// all processes of the program end.
//
// Its standard input must be a socket. If it cannot be started, the line {"errno": N} comes
// there.
func InNamespaces(cmd *exec.Cmd, name string) {
	cmd.Path, cmd.Args = selfExe, []string{mapperName, mapperName, name}
}

func inNamespaces(cmd *exec.Cmd) bool { return len(cmd.Args) > 1 && cmd.Args[1] == mapperName }

// throughMapper completes a command in namespaces for the user that it would run as.
func throughMapper(cmd *exec.Cmd, user *sandbox.User) {
	attr := cmd.SysProcAttr
	uid, gid := os.Geteuid(), os.Getegid()
	if attr.Credential != nil { // of [sandbox.User.Apply]
		uid, gid = int(attr.Credential.Uid), int(attr.Credential.Gid)
		if os.Geteuid() != 0 { // root has them
			attr.AmbientCaps = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}
		}
	}
	attr.Credential = nil
	cmd.Args = append(cmd.Args, strconv.Itoa(uid), strconv.Itoa(gid), strconv.FormatBool(user != nil), cmd.Dir)
	cmd.Dir = "/" // the folder is the program's user's
}

// mapUser starts an init in namespaces and waits for its end. The arguments are the name of the
// init, user id, group id, whether these are a program's own, and the folder.
func mapUser(arguments []string) int {
	runtime.LockOSThread() // the init ends with the thread that started it
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	name, own, dir := arguments[0], arguments[3] == "true", arguments[4]
	uid, uidErr := strconv.Atoi(arguments[1])
	gid, gidErr := strconv.Atoi(arguments[2])
	if uidErr != nil || gidErr != nil {
		return 1
	}
	init, err := os.StartProcess(selfExe, []string{name, name}, &os.ProcAttr{ //nolint:gosec // the worker's arguments
		Dir: dir, Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{
			Pdeathsig:   syscall.SIGKILL,
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: InnerUser, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: InnerUser, HostID: gid, Size: 1}},
			// The worker's other groups go with a user of the program's own, as without namespaces.
			GidMappingsEnableSetgroups: own,
			Credential:                 &syscall.Credential{Uid: InnerUser, Gid: InnerUser, NoSetGroups: !own},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP,
				unix.CAP_KILL, unix.CAP_SYS_TIME},
		},
	})
	if err != nil {
		number, _ := errors.AsType[syscall.Errno](err)
		fmt.Fprintf(os.Stdin, "{\"errno\": %d}\n", int(number))
		return 1
	}
	for fd := range 3 { // the worker waits for their end
		_ = syscall.Close(fd)
	}
	state, err := init.Wait()
	if err != nil {
		return 1
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // no core of this process
		signal.Reset(status.Signal())
		_ = syscall.Kill(os.Getpid(), status.Signal()) // the same end
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
