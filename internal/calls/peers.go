package calls

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/fabric/framed"
	"github.com/outboard-run/outboard/fabric/plain"
	"github.com/outboard-run/outboard/fabric/remote"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// endpointKey names, between nodes, the endpoint that a call is for.
const endpointKey = "outboard-endpoint"

// dialLimit is how long a connection to another node may take to be made.
const dialLimit = 5 * time.Second

// A peer is another node, and the connection that calls to it share. It is made
// by the first call that needs it.
type peer struct {
	plane *Plane
	id    outboard.NodeID
	ways  map[string]*distant // to its endpoints, by their IDs; under Plane.mu

	mu     sync.Mutex
	conn   *remote.Conn
	closed bool
}

// distant is the way to an endpoint of another node.
type distant struct {
	peer *peer
	id   string
}

var _ interface {
	call.Transport
	call.Unary
} = (*distant)(nil)

// peer is the way to another node's endpoint. The mutex is held.
func (p *Plane) peer(e services.Endpoint) call.Transport {
	node := p.peers[e.Node]
	if node == nil {
		node = &peer{plane: p, id: e.Node, ways: map[string]*distant{}}
		p.peers[e.Node] = node
	}
	d := node.ways[e.ID]
	if d == nil {
		d = &distant{peer: node, id: e.ID}
		node.ways[e.ID] = d
	}
	return d
}

// Open implements call.Transport.
func (d *distant) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	conn, err := d.peer.connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Open(ctx, d.address(h))
}

// Unary implements call.Unary.
func (d *distant) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	conn, err := d.peer.connect(ctx)
	if err != nil {
		request.Free()
		return nil, call.End{}, err
	}
	return conn.Unary(ctx, d.address(h), request)
}

// Close implements call.Transport: the connection is the node's.
func (d *distant) Close() error { return nil }

func (d *distant) address(h *call.Head) *call.Head {
	h = h.Clone()
	h.Metadata = h.Metadata.Copy()
	if h.Metadata == nil {
		h.Metadata = metadata.MD{}
	}
	h.Metadata.Set(endpointKey, d.id)
	return h
}

// connect returns the connection, a new one when the last has ended.
func (n *peer) connect(ctx context.Context) (*remote.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil && usable(n.conn) {
		return n.conn, nil
	}
	if n.closed {
		return nil, status.Errorf(codes.Unavailable, "node %s has left the pool", n.id)
	}
	node, ok := n.plane.opts.Members.Node(n.id)
	if !ok {
		return nil, status.Errorf(codes.Unavailable, "node %s is not in the pool", n.id)
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := remote.Dial(ctx, node.Addr, n.plane.opts.TLS(node), remote.Options{
		Trusted: true, Logger: n.plane.log, Framed: n.plane.opts.Framed,
	})
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "node %s: %v", n.id, err)
	}
	n.leave()
	n.conn = conn
	return conn, nil
}

func usable(c *remote.Conn) bool {
	select {
	case <-c.Draining():
		return false
	case <-c.Done():
		return false
	default:
		return true
	}
}

// leave closes the connection once its calls are over. The mutex is held.
func (n *peer) leave() {
	conn := n.conn
	n.conn = nil
	if conn == nil {
		return
	}
	n.plane.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
		defer cancel()
		_ = conn.Drain(ctx)
		_ = conn.Close()
	})
}

// drainLimit is how long calls of a connection that is given up may last.
const drainLimit = time.Minute

func (n *peer) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.conn == nil {
		return nil
	}
	return n.conn.Close()
}

// A way leads to a gRPC server for which this node speaks.
type way struct{ call.Transport }

// way is the way to a gRPC server. The mutex is held.
func (p *Plane) way(e services.Endpoint) call.Transport {
	if w := p.ways[e.Address]; w != nil {
		return w.Transport
	}
	t, err := plain.Dial(e.Address, plain.Options{Logger: p.log})
	if err != nil {
		p.log.Error("gRPC server is not reached", "address", e.Address, "error", err)
		return nil
	}
	p.ways[e.Address] = &way{t}
	return t
}

// release closes the ways that no endpoint uses. The mutex is held.
func (p *Plane) release(used map[call.Transport]bool) {
	for address, w := range p.ways {
		if !used[w.Transport] {
			delete(p.ways, address)
			p.running.Go(func() { _ = w.Close() })
		}
	}
	for id, n := range p.peers {
		for endpoint, d := range n.ways {
			if !used[d] {
				delete(n.ways, endpoint)
			}
		}
		if len(n.ways) == 0 {
			delete(p.peers, id)
			n.mu.Lock()
			n.closed = true
			n.leave()
			n.mu.Unlock()
		}
	}
}

// hangUp closes all ways.
func (p *Plane) hangUp() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, n := range p.peers {
		err = errors.Join(err, n.close())
	}
	for _, w := range p.ways {
		err = errors.Join(err, w.Close())
	}
	return err
}

// ServePeer serves the calls that another node forwards, until the connection
// ends.
func (p *Plane) ServePeer(ctx context.Context, c *framed.Conn, from outboard.NodeID) error {
	conn := remote.New(c, remote.Options{Handler: (*delivery)(p), Peer: string(from), Trusted: true, Logger: p.log})
	select {
	case <-ctx.Done():
		_ = conn.Close()
	case <-conn.Done():
	}
	return nil
}
