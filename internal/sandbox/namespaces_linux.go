package sandbox

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespaces are the kernel's namespaces that this process can create for its children.
type Namespaces struct {
	flags uintptr
}

// namespaceFlags are the namespaces of a sandbox, by mechanism.
var namespaceFlags = map[Mechanism]uintptr{
	Mounts: unix.CLONE_NEWNS, Processes: unix.CLONE_NEWPID, IPC: unix.CLONE_NEWIPC, Hostname: unix.CLONE_NEWUTS, Network: unix.CLONE_NEWNET,
}

// DetectNamespaces tries which namespaces a child can have, first all of them together. An
// unprivileged process gets them together with a user namespace.
func DetectNamespaces() Namespaces {
	user := uintptr(0)
	if os.Geteuid() != 0 || !canClone(unix.CLONE_NEWNS) {
		user = unix.CLONE_NEWUSER
	}
	all := user
	for _, flag := range namespaceFlags {
		all |= flag
	}
	if canClone(all) {
		return Namespaces{all}
	}
	if user != 0 && !canClone(user) {
		return Namespaces{}
	}
	some := user
	for _, flag := range namespaceFlags {
		if canClone(some | flag) {
			some |= flag
		}
	}
	return Namespaces{some}
}

// canClone reports whether a child can be started with the given flags. The child's program does
// not exist: only after a successful clone does the error say so.
func canClone(flags uintptr) bool {
	attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{}}
	Namespaces{flags}.Apply(attr.Sys)
	_, err := syscall.ForkExec("/proc/self/no-such-program", []string{"none"}, attr)
	return errors.Is(err, syscall.ENOENT)
}

// Apply makes a process that is started with attr begin in these namespaces.
func (n Namespaces) Apply(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= n.flags
	if n.flags&unix.CLONE_NEWUSER != 0 {
		// Inside the namespace the process is root until Enter returns.
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}

// User reports whether there is a user namespace.
func (n Namespaces) User() bool { return n.flags&unix.CLONE_NEWUSER != 0 }

// List returns the mechanisms that the namespaces implement.
func (n Namespaces) List() []Mechanism {
	var list []Mechanism
	for _, m := range Mechanisms {
		if flag := namespaceFlags[m]; flag != 0 && n.flags&flag != 0 || m == Identity && n.User() {
			list = append(list, m)
		}
	}
	return list
}
