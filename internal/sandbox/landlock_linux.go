package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rules are the accesses that Landlock still allows.
type Rules struct {
	// Write are files and folders, with all their contents, that may be changed. They must exist;
	// "" is ignored.
	Write []string
	// Read are files and folders that may be read and executed. A path that does not exist
	// is ignored.
	Read []string
	// Devices are device files that may be read, written and controlled.
	Devices []string
	// Network permits TCP.
	Network bool
}

// ErrUnsupported is the error of a mechanism that this kernel does not support.
var ErrUnsupported = errors.New("not supported")

// Rights of Landlock, by the version of its ABI that introduced them.
const (
	landlockReads   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockFirst   = 1<<13 - 1 // version 1
	landlockIoctl   = 1 << 15   // LANDLOCK_ACCESS_FS_IOCTL_DEV, version 5
	landlockNet     = 3         // bind and connect of TCP, version 4
	landlockScopes  = 3         // abstract unix sockets and signals, version 6
	landlockOfFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | landlockIoctl
)

// RestrictThread restricts the calling thread, and the programs that it executes. The thread must
// have set no_new_privs.
func RestrictThread(r Rules) error {
	return r.apply(func(set uintptr) syscall.Errno {
		_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0)
		return errno
	})
}

// Reexecute executes this program again in its place, restricted, without capabilities, without new
// privileges and without ownerCalls, with the same arguments and the environment env. What the new program
// creates is for its user alone. With nil rules it keeps its access to
// files, as it must on a kernel without Landlock. It returns only errors. A program that is linked
// dynamically needs its libraries among r.Read. Landlock restricts one thread, whose restrictions the
// new program has on all threads. The standard library can restrict all threads of a running program
// (syscall.AllThreadsSyscall), but not of one that contains cgo, or purego, which provides cgo's
// functions.
func Reexecute(r *Rules, env []string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if r != nil {
		rules := *r
		rules.Read = append(slices.Clip(r.Read), ownProgram)
		if err := RestrictThread(rules); err != nil {
			runtime.UnlockOSThread() // it is not restricted
			return err
		}
	}
	// Landlock alone does not keep root from loading a kernel module.
	if err := errors.Join(dropCapabilities(), refuseOwnerCalls()); err != nil {
		return err
	}
	unix.Umask(0o077) // it can't restrict the mode of a file afterwards
	return fmt.Errorf("execute this program again: %w", syscall.Exec(ownProgram, os.Args, env))
}

// ownProgram is the file of this process, also if another file has its name by now.
const ownProgram = "/proc/self/exe"

func failed(operation string, errno syscall.Errno) error {
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return fmt.Errorf("%s: %w: %w", operation, ErrUnsupported, errno)
	}
	return fmt.Errorf("%s: %w", operation, errno)
}

// apply creates a ruleset and enforces it.
func (r *Rules) apply(restrict func(set uintptr) syscall.Errno) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return failed("landlock", errno)
	}
	attr := r.handled(abi)
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return failed("landlock", errno)
	}
	defer unix.Close(int(set))
	if err := r.allow(int(set), attr.Handled_access_fs); err != nil {
		return err
	}
	if errno := restrict(set); errno != 0 {
		return failed("landlock", errno)
	}
	return nil
}

// handled returns the accesses that a version of the kernel's interface can deny.
func (r *Rules) handled(abi uintptr) unix.LandlockRulesetAttr {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockFirst}
	if abi >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 && !r.Network {
		attr.Handled_access_net = landlockNet
	}
	if abi >= 5 {
		attr.Handled_access_fs |= landlockIoctl
	}
	if abi >= 6 {
		attr.Scoped = landlockScopes
	}
	return attr
}

func (r *Rules) allow(set int, all uint64) error {
	for _, path := range r.Write {
		if err := allowPath(set, path, all, false); err != nil {
			return err
		}
	}
	for _, path := range r.Devices {
		if err := allowPath(set, path, all, true); err != nil {
			return err
		}
	}
	for _, path := range r.Read {
		if err := allowPath(set, path, all&landlockReads, true); err != nil {
			return err
		}
	}
	return nil
}

func allowPath(set int, path string, rights uint64, mayMiss bool) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if mayMiss || path == "" {
			return nil
		}
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockOfFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %s: %w", path, errno)
	}
	return nil
}
