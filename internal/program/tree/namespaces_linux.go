package tree

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// InnerUser is the user and group id of a program in namespaces of its own. No id of a usual
// machine is the same, so that the program finds no foreign home in /etc/passwd.
const InnerUser = 65500

// selfExe is this executable.
const selfExe = "/proc/self/exe"

// InNamespaces changes a command of [NewCommand], so that [Start] starts this executable with
// the argument name in its place, in a user, PID and mount namespace of its own. There
// [InnerUser] is the only user: the program's, or the worker's. The process gets the
// capabilities that it needs as an init of the namespaces, over them alone. Where it ends,
// all processes of the program end.
func InNamespaces(cmd *exec.Cmd, name string) {
	cmd.Path, cmd.Args = selfExe, []string{name, name}
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP,
		unix.CAP_KILL}
}

func inNamespaces(cmd *exec.Cmd) bool { return cmd.SysProcAttr.Cloneflags&unix.CLONE_NEWPID != 0 }

// mapUser maps the inner user of a command in namespaces to the user that it would run as.
func mapUser(cmd *exec.Cmd, user *sandbox.User) {
	attr := cmd.SysProcAttr
	uid, gid := os.Geteuid(), os.Getegid()
	if attr.Credential != nil { // of [sandbox.User.Apply]
		uid, gid = int(attr.Credential.Uid), int(attr.Credential.Gid)
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: InnerUser, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: InnerUser, HostID: gid, Size: 1}}
	// The worker's other groups go with a user of the program's own, as without namespaces.
	attr.GidMappingsEnableSetgroups = user != nil
	attr.Credential = &syscall.Credential{Uid: InnerUser, Gid: InnerUser, NoSetGroups: user == nil}
}
