package sandbox

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// Calls that package unix has no names for yet, with the same numbers on all architectures.
const (
	sysSetxattrat    = 463
	sysRemovexattrat = 466
	sysFileSetattr   = 469
)

// ownerCalls are, beside attributeCalls, the calls by which the owner of an object may use or change it and
// which Landlock does not restrict: attributes of files, access lists among them, System V's shared memory,
// semaphores and messages, POSIX message queues, and keys.
var ownerCalls = []uint32{
	unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	sysSetxattrat, sysRemovexattrat, sysFileSetattr,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
}

// refuseOwnerCalls refuses attributeCalls and ownerCalls to this thread and all programs that it
// executes, as far as the kernel has filters. The times of files may be changed: the store of artifacts
// marks those in use by them. The thread must have set no_new_privs.
func refuseOwnerCalls() error {
	program := nativeOnly()
	for _, number := range slices.Concat(attributeCalls, nativeAttributeCalls, ownerCalls, nativeOwnerCalls) {
		if number == unix.SYS_UTIMENSAT {
			continue
		}
		program = append(program, skipUnless(unix.BPF_JEQ, number, 1), refuse(unix.EPERM))
	}
	// Before Linux 5.16 a filter without this flag slows down all code of the process.
	err := install(append(program, allow), unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	if errors.Is(err, ErrUnsupported) {
		return nil
	}
	return err
}
