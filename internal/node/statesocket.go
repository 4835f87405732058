package node

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// StateSocket is the name of the socket in the data folder on which this node lends
// the pool's state to its helper processes.
const StateSocket = "state.sock"

// stateLender lends the pool's state to helper processes.
type stateLender struct {
	sockets *localSockets
	state   *state.State
	log     *slog.Logger
}

// run serves helper processes until ctx ends.
func (s *stateLender) run(ctx context.Context, ready func()) error {
	return s.sockets.serve(ctx, StateSocket, unixsock.Listen, ready, s.serve)
}

func (s *stateLender) serve(ctx context.Context, conn *net.UnixConn) {
	if err := s.state.Lend(ctx, conn); err != nil && ctx.Err() == nil {
		s.log.Debug("the pool's state is not lent", "error", err)
	}
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
