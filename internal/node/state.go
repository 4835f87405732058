package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/outboard-run/outboard/internal/unixsock"
)

// StateSocket is the name of the socket in the data folder on which this node lends
// the pool's state to its helper processes.
const StateSocket = "state.sock"

// lendState lets helper processes use the pool's state.
func (n *Node) lendState(ctx context.Context, ready func()) error {
	listener, err := unixsock.Listen(n.folder.at(StateSocket))
	if err != nil {
		return fmt.Errorf("lend the pool's state: %w", err)
	}
	defer os.Remove(n.folder.at(StateSocket))
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	ready()
	var lending sync.WaitGroup
	defer lending.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			n.log.Warn("accept a helper process", "error", err)
			pause(ctx)
			continue
		}
		lending.Go(func() { n.lendTo(ctx, conn) })
	}
}

func (n *Node) lendTo(ctx context.Context, conn net.Conn) {
	if err := n.state.Lend(ctx, conn); err != nil && ctx.Err() == nil {
		n.log.Debug("the pool's state is not lent", "error", err)
	}
}

// absolute is a path for processes that have other working folders.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
