package node

import (
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// localSockets are the sockets in the data folder to which programs of this machine connect. They
// refuse the workers of this node.
type localSockets struct {
	folder *folder
	owns   func(pid int) bool // reports whether a process is refused
	// tenantOf returns the tenant of a process, "" for others. A tenant has at most tenantConns
	// connections on each socket, of the maxLocalConns that all peers share.
	tenantOf    func(pid int) string
	tenantConns int
	log         *slog.Logger
	health      *health.Board
}

// refusing returns the sockets with another rule about the processes that are refused. The processes
// of tenants use some of the sockets, and prove their tenant there.
func (s *localSockets) refusing(owns func(pid int) bool) *localSockets {
	other := *s
	other.owns = owns
	return &other
}

// serve serves each connection on a socket until ctx is done. It closes the connections.
func (s *localSockets) serve(ctx context.Context, name string, listen func(string) (*net.UnixListener, error), ready func(), serve func(context.Context, *net.UnixConn)) error {
	path := s.folder.at(name)
	listener, err := listen(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	guarded := guardedListener{listener, s.owns, s.log}
	var held tenantQuota
	ready()
	acceptor.Serve(ctx, listener, guarded.AcceptUnix, acceptor.Options{
		Name: name, Log: s.log, MaxConns: maxLocalConns, Degraded: s.health.Reporter("socket " + name),
	}, func(ctx context.Context, conn *net.UnixConn) {
		defer conn.Close()
		tenant, err := s.acquire(&held, conn)
		if err != nil {
			s.log.Warn("peer refused", "socket", name, "error", err)
			return
		}
		defer held.release(tenant)
		serve(ctx, conn)
	})
	return nil
}

const (
	// maxLocalConns bounds the connections on one socket.
	maxLocalConns = 16384
	// maxTenantConns bounds those of a tenant's process, which needs one for each lease of a device
	// and each model, and one to the pool's state.
	maxTenantConns = 256
)

// acquire counts a connection of a tenant. It returns an error if the tenant has too many, or if the
// peer has ended.
func (s *localSockets) acquire(q *tenantQuota, conn *net.UnixConn) (tenant string, err error) {
	if err := unixsock.CheckPeer(conn, func(pid int) error {
		tenant = s.tenantOf(pid)
		return nil
	}); err != nil {
		return "", err
	}
	if !q.acquire(tenant, s.tenantConns) {
		return "", outboard.Errorf(outboard.Exhausted, "local socket", "the process of tenant %s has %d connections", tenant, s.tenantConns)
	}
	return tenant, nil
}

// A guardedListener is a local socket's listener that refuses the node's own workers. They run
// foreign code as the node's user, who owns the socket.
type guardedListener struct {
	*net.UnixListener
	// owns reports whether a process is a worker or descends from one.
	owns func(pid int) bool
	log  *slog.Logger
}

// Accept implements net.Listener.
func (l guardedListener) Accept() (net.Conn, error) { return l.AcceptUnix() }

// AcceptUnix waits for the next peer that is not a worker.
func (l guardedListener) AcceptUnix() (*net.UnixConn, error) {
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

// admit refuses the process that connected if it is a worker. Outside of the node's PID namespace there
// are none.
func (l guardedListener) admit(conn *net.UnixConn) error {
	return unixsock.CheckPeer(conn, func(pid int) error {
		if pid != 0 && l.owns(pid) {
			return outboard.Errorf(outboard.Denied, "local socket", "process %d is a worker of this node, or gone", pid)
		}
		return nil
	})
}
