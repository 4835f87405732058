package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RefuseWatches refuses the calls that make watches of epoll to all threads of this process, which
// Exec has executed, and to the programs that it executes, but for those among extra, which the
// operator allows (Config.Calls). The process can watch no further file: files that Go's poller
// is to know must be open. Foreign code is to be loaded afterwards.
//
// The kernel counts watches for the user of the process and has no limit for a user namespace
// (epoll(7), max_user_watches), so otherwise a process that has its node's user could use up those
// of the node. A limit of descriptors bounds them as little, since a watch lasts as long as its
// file and not as its descriptor.
func RefuseWatches(extra []uint32) error {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil || mode != unix.SECCOMP_MODE_FILTER {
		return nil //nolint:nilerr // Enter has reported that this kernel has no filter
	}
	if err := startPoller(); err != nil {
		return err
	}
	program := watchFilter(extra)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("refuse watches: %w", errno)
	case thread != 0:
		return fmt.Errorf("refuse watches: thread %d has another filter", thread)
	}
	return nil
}

// startPoller has Go's runtime make its instance of epoll, without which it would end the process
// later.
func startPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("refuse watches: %w", err)
	}
	return errors.Join(r.Close(), w.Close())
}

// watchFilter returns the program of the filter of RefuseWatches, which refuses further filters,
// too.
func watchFilter(extra []uint32) []unix.SockFilter {
	program := []unix.SockFilter{load(dataNumber)}
	for _, number := range slices.Concat(watchCalls, nativeWatchCalls, []uint32{unix.SYS_SECCOMP}) {
		if !slices.Contains(extra, number) {
			program = append(program, skipUnless(unix.BPF_JEQ, number, 1), refuse(unix.EPERM))
		}
	}
	return append(program, allow)
}
