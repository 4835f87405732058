package node

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/shm"
)

// maxPeers bounds the connections of other nodes and of sessions.
const maxPeers = 4096

// serveFabric serves other nodes: those that join, those that use the pool's
// state, and the sessions of their programs.
func (n *Node) serveFabric(ctx context.Context, ready func()) error {
	stop := context.AfterFunc(ctx, func() { _ = n.listener.Close() })
	defer stop()
	ready()
	var serving sync.WaitGroup
	defer serving.Wait()
	room := make(chan struct{}, maxPeers)
	for {
		conn, err := n.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			n.log.Warn("accept a node", "error", err)
			pause(ctx)
			continue
		}
		room <- struct{}{}
		serving.Go(func() {
			defer func() { <-room }()
			defer conn.Close()
			err := n.servePeer(ctx, conn)
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, state.ErrElsewhere):
				// One of ours, who asks the next node now: no refusal.
				n.log.Debug("peer sent elsewhere", "peer", conn.RemoteAddr().String())
			default:
				n.refused.WithLabelValues(outboard.KindOf(err).String()).Inc()
				n.log.Warn("peer refused", "peer", conn.RemoteAddr().String(), "error", err)
			}
		})
	}
}

// servePeer finds out what a peer came for. An error says why it was refused.
func (n *Node) servePeer(ctx context.Context, raw net.Conn) error {
	offered, nc, err := peek(ctx, raw)
	if err != nil {
		return outboard.Errorf(outboard.Protocol, "handshake", "%w", err)
	}
	switch {
	case slices.Contains(offered, borrow.Protocol):
		return n.serveConn(ctx, nc)
	case slices.Contains(offered, calls.Protocol):
		return n.calls.ServePeer(raw, nc.seen)
	}
	return n.pool.ServeConn(ctx, tls.Server(nc, n.identity.ServerTLS(pool.Protocols()...)))
}

// serveConn serves the sessions that one program has on this node's devices.
func (n *Node) serveConn(ctx context.Context, nc net.Conn) error {
	conn := framed.Server(nc, n.framed(n.identity.ServerTLS(borrow.Protocol)))
	defer conn.Close()
	peer, err := n.greet(ctx, conn)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		stream, err := conn.Accept(ctx)
		if err != nil {
			// The program ended, or died, or this node stops.
			return nil
		}
		serving.Go(func() { n.serveStream(ctx, stream, peer) })
	}
}

// serveStream is the life of one session whose program is on another machine.
func (n *Node) serveStream(ctx context.Context, stream *framed.Stream, peer authority.Peer) {
	if stream.Method() != borrow.Method {
		stream.Reset(outboard.Errorf(outboard.NotFound, "fabric", "this node knows no method %q", stream.Method()))
		return
	}
	claim, err := borrow.ClaimOf(stream.Header())
	var session *lend.Session
	if err == nil {
		session, err = n.startSession(ctx, claim, peer.Node, "tcp")
	}
	if err != nil {
		n.log.Warn("session refused", "via", "tcp", "peer", peer.Node, "error", err)
		stream.Reset(err)
		return
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() { session.End(errStopped) })
	defer stop()
	session.End(framed.Relay(stream, reasoned{session.Ring(), session}))
}

// reasoned is a session's ring whose failures say what happened, and not only of
// what kind it was: the stream takes the words to the program's side.
type reasoned struct {
	*shm.Ring
	session *lend.Session
}

// Next implements framed.Ring.
func (r reasoned) Next(least int) ([]byte, error) {
	b, err := r.Ring.Next(least)
	return b, r.why(err)
}

// Reserve implements framed.Ring.
func (r reasoned) Reserve(least int) ([]byte, error) {
	b, err := r.Ring.Reserve(least)
	return b, r.why(err)
}

// reasonLimit is how long a worker that failed its ring may take to say why.
const reasonLimit = time.Second

func (r reasoned) why(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	timer := time.NewTimer(reasonLimit)
	defer timer.Stop()
	select {
	case <-r.session.Ending():
	case <-timer.C:
	}
	if reason := r.session.Err(); reason != nil {
		return reason
	}
	return err
}
