package node

import (
	"errors"
	"log/slog"
	"net"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// guarded is a local socket's listener that refuses the node's own workers. They
// run foreign code as the node's user, for whom the socket is meant, and have no
// business there.
type guarded struct {
	*net.UnixListener
	// owns reports whether a process is a worker or comes of one.
	owns func(pid int) bool
	log  *slog.Logger
}

// Accept implements net.Listener.
func (l guarded) Accept() (net.Conn, error) { return l.AcceptUnix() }

// AcceptUnix waits for the next peer that is none of the workers.
func (l guarded) AcceptUnix() (*net.UnixConn, error) {
	for {
		conn, err := l.UnixListener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		err = l.admit(conn)
		if err == nil {
			return conn, nil
		}
		l.log.Warn("peer refused", "socket", l.Addr().String(), "error", err)
		_ = conn.Close()
	}
}

func (l guarded) admit(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var verdict error
	if err := raw.Control(func(fd uintptr) { verdict = l.check(int(fd)) }); err != nil {
		return err
	}
	return verdict
}

// check looks at the process that connected. Its number may belong to another one
// by now: only if it still lives afterwards was what we looked at the peer.
func (l guarded) check(fd int) error {
	const op = "local socket"
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return outboard.Errorf(outboard.Denied, op, "unknown peer: %w", err)
	}
	if cred.Pid == 0 {
		return nil // from outside our process namespace, where no worker is
	}
	if l.owns(int(cred.Pid)) {
		return outboard.Errorf(outboard.Denied, op, "process %d is a worker of this node, or gone", cred.Pid)
	}
	handle, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil // before Linux 6.5
	}
	if err != nil {
		return outboard.Errorf(outboard.Denied, op, "process %d is gone: %w", cred.Pid, err)
	}
	defer unix.Close(handle)
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, 0); n != 0 {
		return outboard.Errorf(outboard.Denied, op, "process %d is gone", cred.Pid)
	}
	return nil
}
