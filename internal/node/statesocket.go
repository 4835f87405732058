package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/tenant/host"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// StateSocket is the name of the socket in the data folder on which this node lends
// the pool's state to its helper processes.
const StateSocket = "state.sock"

// stateLender gives the tenants' processes access to the pool's state. Each process proves its
// tenant by its key, and has the permissions of that tenant.
type stateLender struct {
	sockets *localSockets
	state   *state.State
	node    outboard.NodeID
	// tenants are set before the first process starts.
	tenants atomic.Pointer[host.Host]
	log     *slog.Logger
}

// run serves helper processes until ctx ends.
func (s *stateLender) run(ctx context.Context, ready func()) error {
	return s.sockets.serve(ctx, StateSocket, unixsock.Listen, ready, s.serve)
}

func (s *stateLender) serve(ctx context.Context, conn *net.UnixConn) {
	tenant, err := s.identify(conn)
	if err != nil {
		s.log.Warn("peer refused", "socket", StateSocket, "error", err)
		return
	}
	if err := s.state.Lend(ctx, conn, state.Borrower{Node: string(s.node), Tenant: tenant}); err != nil && ctx.Err() == nil {
		s.log.Debug("the pool's state is not lent", "error", err)
	}
}

// identify reads the key that a process sends first, and returns the tenant.
func (s *stateLender) identify(conn *net.UnixConn) (tenant string, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(requestLimit)); err != nil {
		return "", err
	}
	key := make([]byte, host.KeySize)
	if _, err := io.ReadFull(conn, key); err != nil {
		return "", outboard.Errorf(outboard.Protocol, "the pool's state", "the process sent no key: %w", err)
	}
	if tenants := s.tenants.Load(); tenants != nil {
		tenant, _ = tenants.TenantOfKey(string(key))
	}
	if tenant == "" {
		return "", outboard.Errorf(outboard.Denied, "the pool's state", "no process of this node has this key")
	}
	return tenant, conn.SetReadDeadline(time.Time{})
}

// absolute returns a path for processes that have other working folders.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
