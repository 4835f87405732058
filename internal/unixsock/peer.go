package unixsock

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// CheckPeer calls check with the number of the process at the other end, the one that connected or
// listens, and returns its error. The number may have been reused: CheckPeer returns an error if that
// process has ended. The number of a process outside of this one's PID namespace is 0.
func CheckPeer(conn *net.UnixConn, check func(pid int) error) error {
	const op = "local socket"
	var cred *unix.Ucred
	if err := control(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	}); err != nil {
		return outboard.Errorf(outboard.Denied, op, "unknown peer: %w", err)
	}
	if err := check(int(cred.Pid)); err != nil || cred.Pid == 0 {
		return err
	}
	return control(conn, func(fd int) error { return checkAlive(fd, cred.Pid) })
}

// control calls f with the descriptor of a connection.
func control(conn *net.UnixConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// checkAlive returns an error if the peer's process has ended. Before Linux 6.5 it can't find
// out.
func checkAlive(fd int, pid int32) error {
	const op = "local socket"
	handle, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	if err != nil {
		return outboard.Errorf(outboard.Denied, op, "process %d is gone: %w", pid, err)
	}
	defer unix.Close(handle)
	if hasEnded(handle) {
		return outboard.Errorf(outboard.Denied, op, "process %d is gone", pid)
	}
	return nil
}

// hasEnded reports whether a process has ended, or its state can't be asked for.
func hasEnded(pidfd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) { // also without a time-out; Go's scheduler sends signals
			return n != 0
		}
	}
}
