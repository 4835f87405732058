package worker

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a filter looks at: struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16 // its low half, on little-endian machines
)

// refusedCall is a system call that workers may not make.
type refusedCall struct {
	number uint32
	errno  unix.Errno
}

// refusals say what no driver needs, and a hostile kernel could use.
//
//   - Landlock does not stop a process from connecting to sockets in the file
//     system: those of the node, of other sessions, of everything else that the
//     user runs. socket(AF_UNIX) is refused below, by its argument; io_uring makes
//     sockets too, past the filter.
//   - A worker is killed as a group: what left the group would live on.
//   - Landlock keeps a confined process from tracing those that are not; where the
//     kernel has no Landlock, this does.
var refusals = []refusedCall{
	{unix.SYS_SETSID, unix.EPERM},
	{unix.SYS_SETPGID, unix.EPERM},
	{unix.SYS_IO_URING_SETUP, unix.ENOSYS},
	{unix.SYS_PTRACE, unix.EPERM},
	{unix.SYS_PROCESS_VM_READV, unix.EPERM},
	{unix.SYS_PROCESS_VM_WRITEV, unix.EPERM},
	{unix.SYS_PIDFD_GETFD, unix.EPERM},
}

// filterCalls refuses these calls to this thread and all that comes of it.
func filterCalls() error {
	program := filter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// noFilter reports whether err means that the kernel has no system call filters.
func noFilter(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) }

func filter() []unix.SockFilter {
	foreign := verdict(unix.EPERM) // x86's two older instruction sets have other numbers
	program := []unix.SockFilter{
		fetch(dataArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nativeArch, Jt: 1},
		foreign,
		fetch(dataNumber),
		skipUnless(unix.BPF_JGE, foreignNumbers, 1),
		foreign,
	}
	for _, r := range refusals {
		program = append(program, skipUnless(unix.BPF_JEQ, r.number, 1), verdict(r.errno))
	}
	return append(program,
		skipUnless(unix.BPF_JEQ, unix.SYS_SOCKET, 3),
		fetch(dataArg0),
		skipUnless(unix.BPF_JEQ, unix.AF_UNIX, 1),
		verdict(unix.EACCES),
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	)
}

func fetch(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// skipUnless skips the next skip instructions when the comparison does not hold.
func skipUnless(compare uint16, value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jf: skip}
}

func verdict(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}
