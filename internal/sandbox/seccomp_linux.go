package sandbox

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Arguments: their low halves, on little-endian machines.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
)

// namespaceClone are the flags of clone that create namespaces.
const namespaceClone = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// processControls are the allowed options of prctl. PR_SET_PDEATHSIG is not among them: a process
// that cleared it would survive its parent.
var processControls = []uint32{
	unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_VMA, unix.PR_CAPBSET_READ, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_PDEATHSIG,
	unix.PR_GET_DUMPABLE, unix.PR_GET_SECCOMP, unix.PR_SET_TIMERSLACK, unix.PR_GET_TIMERSLACK, unix.PR_GET_THP_DISABLE,
	unix.PR_SET_THP_DISABLE, unix.PR_GET_TID_ADDRESS,
}

// terminalControls are the requests of ioctl that type into terminals or acquire them.
var terminalControls = []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSCTTY}

// fileNotices are the commands of fcntl by which a process learns what other programs of the machine do
// with files and folders that it can read, such as each start of a program in /usr/bin, or delays it
// (dnotify, and leases of files).
var fileNotices = []uint32{unix.F_NOTIFY, unix.F_SETLEASE}

// The requests of ioctl to sockets are 0x89xx and, to wireless devices, 0x8bxx. Any socket answers them
// for the network in which it was made, which is the node's for the one that the process inherits.
const (
	socketControl     = 0x8900
	socketControlMask = 0xfffffd00
)

// unsupported are calls for which callers have a substitute if they fail with ENOSYS. The filter
// can't see the flags of clone3, and io_uring creates sockets past the filter.
var unsupported = []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

// allowCalls enforces the allow-list of system calls, with extra ones, on this thread and all
// programs that it executes.
func allowCalls(extra []uint32, ownRoot bool) error {
	program := filter(extra, ownRoot)
	return install(program, 0)
}

// install has the kernel run a filter for this thread and all programs that it executes.
func install(program []unix.SockFilter, flags uintptr) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno == 0 {
		return nil
	}
	if errno == unix.EINVAL || errno == unix.ENOSYS {
		return fmt.Errorf("filter system calls: %w: %w", ErrUnsupported, errno)
	}
	return fmt.Errorf("filter system calls: %w", errno)
}

// filter returns the program of the filter. Calls whose verdict does not depend on arguments cost
// nothing on kernels that cache such verdicts (5.11 and later).
func filter(extra []uint32, ownRoot bool) []unix.SockFilter {
	allowed := slices.Concat(commonCalls, nativeCalls, watchCalls, nativeWatchCalls, extra)
	if ownRoot {
		allowed = slices.Concat(allowed, attributeCalls, nativeAttributeCalls)
	}
	program := nativeOnly()
	for _, number := range allowed {
		program = append(program, skipUnless(unix.BPF_JEQ, number, 1), allow)
	}
	for _, number := range unsupported {
		program = append(program, skipUnless(unix.BPF_JEQ, number, 1), refuse(unix.ENOSYS))
	}
	program = append(program, when(unix.SYS_CLONE, dataArg0,
		skipUnless(unix.BPF_JSET, namespaceClone, 1), refuse(unix.EPERM), allow)...)
	program = append(program, when(unix.SYS_FCNTL, dataArg1, append(each(fileNotices, refuse(unix.EPERM)), allow)...)...)
	program = append(program, when(unix.SYS_IOCTL, dataArg1, append(each(terminalControls, refuse(unix.EPERM)),
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketControlMask},
		skipUnless(unix.BPF_JEQ, socketControl, 1), refuse(unix.EPERM), allow)...)...)
	program = append(program, when(unix.SYS_PRCTL, dataArg0, append(each(processControls, allow), refuse(unix.EPERM))...)...)
	program = append(program, when(unix.SYS_SOCKETPAIR, dataArg0,
		skipUnless(unix.BPF_JEQ, unix.AF_UNIX, 1), allow, refuse(unix.EACCES))...)
	program = append(program, when(unix.SYS_SECCOMP, dataArg1, // see RefuseWatches
		skipUnless(unix.BPF_JEQ, unix.SECCOMP_FILTER_FLAG_TSYNC, 1), allow, refuse(unix.EPERM))...)
	program = append(program, skipUnless(unix.BPF_JEQ, unix.SYS_SOCKET, 1), refuse(unix.EACCES))
	return append(program, refuse(unix.EPERM))
}

// nativeOnly returns code that refuses x86's two older instruction sets, which have other numbers, and
// loads the number of the call.
func nativeOnly() []unix.SockFilter {
	return []unix.SockFilter{
		load(dataArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nativeArch, Jt: 1},
		refuse(unix.EPERM),
		load(dataNumber),
		skipUnless(unix.BPF_JGE, foreignNumbers, 1),
		refuse(unix.EPERM),
	}
}

// when returns code that runs body, which must end with a verdict, for one call with an argument
// loaded.
func when(number uint32, argument uint32, body ...unix.SockFilter) []unix.SockFilter {
	code := append([]unix.SockFilter{load(argument)}, body...)
	return append([]unix.SockFilter{skipUnless(unix.BPF_JEQ, number, uint8(len(code)))}, code...)
}

// each returns code that gives a verdict for each of the values.
func each(values []uint32, verdict unix.SockFilter) []unix.SockFilter {
	var code []unix.SockFilter
	for _, v := range values {
		code = append(code, skipUnless(unix.BPF_JEQ, v, 1), verdict)
	}
	return code
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// skipUnless returns an instruction that skips the next skip instructions unless the comparison
// holds.
func skipUnless(compare uint16, value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jf: skip}
}

var allow = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}

func refuse(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}
