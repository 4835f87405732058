package tenant

import (
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/unixsock"
)

// A nodeListener accepts connections from the node alone. The processes of other tenants have the same
// user, so the mode of a socket does not keep them away, and Landlock does not cover sockets.
type nodeListener struct {
	*net.UnixListener
	node int // the node's process ID
	log  *slog.Logger
}

// listenForNode listens at a path for the process that has started this one.
func listenForNode(path string, log *slog.Logger) (*nodeListener, error) {
	l, err := unixsock.Listen(path)
	if err != nil {
		return nil, err
	}
	return &nodeListener{l, os.Getppid(), log}, nil
}

// Accept implements net.Listener.
func (l *nodeListener) Accept() (net.Conn, error) { return l.AcceptUnix() }

// AcceptUnix waits for the next connection of the node.
func (l *nodeListener) AcceptUnix() (*net.UnixConn, error) {
	for {
		conn, err := l.UnixListener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		pid := peerOf(conn)
		if pid == l.node || pid == os.Getpid() { // tests have the tenant in the node's process
			return conn, nil
		}
		l.log.Warn("peer refused", "socket", l.Addr().String(), "pid", pid)
		_ = conn.Close()
	}
}

// peerOf returns the ID of the process that has connected, 0 if it is not known.
func peerOf(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // an error leaves it unknown
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
