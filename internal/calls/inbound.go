package calls

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// An origin is the kind of process at the other end of a connection.
type origin int

const (
	fromNode    origin = iota // another node
	fromProcess               // a sibling: another process of this node
)

// maxInbound bounds the connections of other nodes.
const maxInbound = 4096

// inbound holds the connections that bring calls, from other nodes and from sibling processes.
type inbound struct {
	life    *lifetime
	handler handler
	log     *slog.Logger

	mu            sync.Mutex
	conns         map[*remote.Conn]origin
	unverified    int // connections whose peer has not proved its identity
	links         int // links of siblings that are not in conns yet
	drainingNodes bool
	drainingAll   bool
}

func newInbound(life *lifetime, h handler, log *slog.Logger) *inbound {
	return &inbound{life: life, handler: h, log: log, conns: map[*remote.Conn]origin{}}
}

// reserve counts a connection whose peer has not proved its identity yet; false: there are too
// many.
func (in *inbound) reserve() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.unverified+len(in.conns) >= maxInbound {
		return false
	}
	in.unverified++
	return true
}

// release ends a reservation.
func (in *inbound) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unverified--
}

// reserveLink counts a link that a sibling has made, and returns the function that ends that.
func (in *inbound) reserveLink() (release func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.links++
	return sync.OnceFunc(func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.links--
	})
}

// serve serves the calls of a connection until it ends. It calls registered as soon as the drain
// functions include the connection.
func (in *inbound) serve(ctx context.Context, c *framed.Conn, from origin, peer string, registered func()) {
	conn := remote.New(c, remote.Options{Handler: in.handler, Peer: peer, Trusted: true, Logger: in.log})
	in.add(conn, from)
	registered()
	select {
	case <-ctx.Done():
	case <-in.life.ctx.Done():
	case <-conn.Done():
	}
	_ = conn.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.conns, conn)
}

func (in *inbound) add(conn *remote.Conn, from origin) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conns[conn] = from
	if in.drainingAll || in.drainingNodes && from == fromNode {
		in.drainLocked(conn)
	}
}

// drainNodes ends the connections of other nodes once their calls are over.
func (in *inbound) drainNodes() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.drainingNodes = true
	for conn, from := range in.conns {
		if from == fromNode {
			in.drainLocked(conn)
		}
	}
}

// drainAll ends all connections once their calls are over.
func (in *inbound) drainAll() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.drainingAll = true
	for conn := range in.conns {
		in.drainLocked(conn)
	}
}

func (in *inbound) drainLocked(conn *remote.Conn) {
	in.life.Go(func() {
		// An error means that the connection has ended, or the Plane.
		_ = conn.Drain(in.life.ctx)
		in.awaitPeer(conn)
		_ = conn.Close()
	})
}

// drainedLimit is how long a peer may take to read its last responses and to close a drained
// connection.
const drainedLimit = 10 * time.Second

// awaitPeer waits until the peer has closed a drained connection: if this side closed it first,
// responses that the peer has not read yet could be lost.
func (in *inbound) awaitPeer(conn *remote.Conn) {
	limit := time.NewTimer(drainedLimit)
	defer limit.Stop()
	select {
	case <-conn.Done():
	case <-in.life.ctx.Done():
	case <-limit.C:
	}
}

// noNodes reports whether no node is connected or connecting.
func (in *inbound) noNodes() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, from := range in.conns {
		if from == fromNode {
			return false
		}
	}
	return in.unverified == 0
}

// empty reports whether neither a node nor a sibling is connected or connecting.
func (in *inbound) empty() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.conns)+in.unverified+in.links == 0
}

// ServePeer serves the calls that another node forwards, until the connection ends.
func (p *Plane) ServePeer(ctx context.Context, c *framed.Conn, from outboard.NodeID) {
	p.inbound.serve(ctx, c, fromNode, string(from), func() {})
}

// ServeProcess serves the calls that a sibling process forwards, until the connection
// ends. It calls registered as soon as Retire waits for the connection.
func (p *Plane) ServeProcess(ctx context.Context, nc net.Conn, registered func()) {
	p.inbound.serve(ctx, framed.Server(nc, p.transports.siblingOptions()), fromProcess, "", registered)
}
