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
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/transit"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// endpointKey names, between nodes, the endpoint that a call is for.
const endpointKey = offer.EndpointKey

// dialLimit is how long a connection to another node may take to be made.
const dialLimit = 5 * time.Second

// A peer is another node, or another process of this one, and the connection that
// calls to it share. It is made by the first call that needs it.
type peer struct {
	plane *Plane
	name  string
	dial  func(context.Context) (*remote.Conn, error)
	ways  map[string]*distant // to its endpoints, by their IDs; under Plane.mu

	mu     sync.Mutex
	now    *route // nil: none
	closed bool
}

// A route is one connection to a peer, with the streams on it.
type route struct {
	conn  *remote.Conn
	fleet transit.Fleet
	left  chan struct{} // closed when new calls take another
}

// distant is the way to an endpoint of another node, or of another process.
type distant struct {
	id string
	// find says which way the next attempt takes.
	find func() (call.Transport, *peer)
	near bool // it is an endpoint of this node
}

var _ interface {
	call.Transport
	call.Unary
} = (*distant)(nil)

// peer is the way to another node's endpoint. The mutex is held.
func (p *Plane) peer(e services.Endpoint) call.Transport {
	node := p.peers[e.Node]
	if node == nil {
		node = p.newPeer("node "+string(e.Node), func(ctx context.Context) (*remote.Conn, error) { return p.dialNode(ctx, e.Node) })
		p.peers[e.Node] = node
	}
	d := node.ways[e.ID]
	if d == nil {
		d = &distant{id: e.ID, find: func() (call.Transport, *peer) { return nil, node }}
		node.ways[e.ID] = d
	}
	return d
}

func (p *Plane) newPeer(name string, dial func(context.Context) (*remote.Conn, error)) *peer {
	return &peer{plane: p, name: name, dial: dial, ways: map[string]*distant{}}
}

func (p *Plane) dialNode(ctx context.Context, id outboard.NodeID) (*remote.Conn, error) {
	node, ok := p.opts.Members.Node(id)
	if !ok {
		return nil, errors.New("it is not in the pool")
	}
	return remote.Dial(ctx, node.Addr, p.opts.TLS(node), remote.Options{Trusted: true, Logger: p.log, Framed: p.opts.Framed})
}

// unreached is the status of a call for which there was no connection.
type unreached struct{ why string }

func (u unreached) Error() string { return u.why }

// GRPCStatus is how the package status sees it.
func (u unreached) GRPCStatus() *status.Status { return status.New(codes.Unavailable, u.why) }

// Unsent says that the callee never saw the call.
func (unreached) Unsent() bool { return true }

// attempts is how often a call is sent on another connection when the peer wants no
// more on the one that it was to take. The peer has never seen the call then. Who has
// an endpoint of this node may change meanwhile: then it is looked up again.
const attempts = 12

// A sender makes a call over t. The fleet is that of the streams there, nil where they
// never have to move.
type sender func(t call.Transport, fleet *transit.Fleet, h *call.Head) error

// try makes a call by f until it is under way.
func (d *distant) try(ctx context.Context, f sender, h *call.Head) error {
	var err error
	for n := range attempts {
		if n > 1 && !pause(ctx, time.Duration(n)*5*time.Millisecond) {
			break
		}
		var final bool
		if final, err = d.once(ctx, f, h); final || !unsent(err) {
			return err
		}
	}
	return err
}

// once tries once. final: another attempt would be as useless.
func (d *distant) once(ctx context.Context, f sender, h *call.Head) (final bool, err error) {
	t, peer := d.find()
	switch {
	case t != nil:
		return false, f(t, nil, h)
	case d.near && transit.IsMove(h):
		// It would be back in the process that it is to leave.
		return false, unreached{"the endpoint's program has not changed over yet"}
	}
	r, err := peer.connect(ctx)
	if err != nil {
		return !d.near, err // the router knows other endpoints
	}
	return false, f(r.conn, &r.fleet, d.address(h))
}

// pause is false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unsent says that the callee never saw a call that failed.
func unsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

// Open implements call.Transport. A stream goes on by another connection when the peer
// wants it.
func (d *distant) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if !h.Streaming {
		s, _, err := d.leg(ctx, h)
		return s, err
	}
	return transit.Open(ctx, h, d.leg)
}

// leg implements transit.Way.
func (d *distant) leg(ctx context.Context, h *call.Head) (s call.ClientStream, fleet *transit.Fleet, err error) {
	err = d.try(ctx, func(t call.Transport, of *transit.Fleet, h *call.Head) (err error) {
		fleet = of
		s, err = t.Open(ctx, h)
		return err
	}, h)
	return s, fleet, err
}

// Unary implements call.Unary.
func (d *distant) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	defer request.Free()
	var response *call.Message
	var end call.End
	err := d.try(ctx, func(t call.Transport, _ *transit.Fleet, h *call.Head) (err error) {
		again := *request
		again.Release = nil
		if u, ok := t.(call.Unary); ok {
			response, end, err = u.Unary(ctx, h, &again)
		} else {
			response, end, err = unary(ctx, t, h, &again)
		}
		return err
	}, h)
	return response, end, err
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
func (n *peer) connect(ctx context.Context) (*route, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now != nil && usable(n.now.conn) {
		return n.now, nil
	}
	if n.closed {
		return nil, unreached{n.name + " has no endpoints any more"}
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := n.dial(ctx)
	if err != nil {
		return nil, unreached{n.name + ": " + err.Error()}
	}
	n.leave()
	r := &route{conn: conn, left: make(chan struct{})}
	n.now = r
	n.plane.running.Go(func() { r.last(n.plane.life) })
	return r, nil
}

// last is the life of a route: once new calls take another one, streams change over to
// that, and when the other calls are over the connection is closed.
func (r *route) last(life context.Context) {
	select {
	case <-r.conn.Draining():
	case <-r.left:
	case <-life.Done():
	}
	ctx, stop := context.WithCancel(life)
	var moving sync.WaitGroup
	defer moving.Wait()
	defer stop()
	moving.Go(func() { r.fleet.Move(ctx) })
	// Its error is that the Plane ends, and with it every call.
	_ = r.conn.Finish(life)
	_ = r.conn.Close()
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
	if n.now != nil {
		close(n.now.left)
		n.now = nil
	}
}

func (n *peer) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.now == nil {
		return nil
	}
	return n.now.conn.Close()
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
			n.retire()
		}
	}
	p.releaseNear(used)
}

// releaseNear is release for the other processes of this node.
func (p *Plane) releaseNear(used map[call.Transport]bool) {
	for process, n := range p.near {
		for endpoint, d := range n.ways {
			if !used[d] {
				delete(n.ways, endpoint)
			}
		}
		if len(n.ways) == 0 {
			delete(p.near, process)
			n.retire()
		}
	}
}

// retire makes no more connections.
func (n *peer) retire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.leave()
}

// hangUp closes all ways.
func (p *Plane) hangUp() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, n := range p.peers {
		err = errors.Join(err, n.close())
	}
	for _, n := range p.near {
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
	return p.servePeer(ctx, c, from, func() {})
}

// servePeer calls arrived once Retire knows of the connection.
func (p *Plane) servePeer(ctx context.Context, c *framed.Conn, from outboard.NodeID, arrived func()) error {
	return p.serveInbound(ctx, c, fromNode, string(from), arrived)
}

// maxInbound bounds the connections of other nodes.
const maxInbound = 4096

// expect counts a connection of a node that has not shown yet who it is; false:
// there are too many.
func (p *Plane) expect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arriving+len(p.inbound) >= maxInbound {
		return false
	}
	p.arriving++
	return true
}

// arrived ends what expect began.
func (p *Plane) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arriving--
}

func (p *Plane) serveInbound(ctx context.Context, c *framed.Conn, from origin, name string, arrived func()) error {
	d := (*delivery)(p)
	conn := remote.New(c, remote.Options{Handler: counted{p, d, d}, Peer: name, Trusted: true, Logger: p.log})
	p.enlist(conn, from)
	arrived()
	select {
	case <-ctx.Done():
	case <-p.life.Done():
	case <-conn.Done():
	}
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inbound, conn)
	return nil
}

func (p *Plane) enlist(conn *remote.Conn, from origin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbound[conn] = from
	if p.leaving || p.retiring && from == fromNode {
		p.sayGoodbye(conn)
	}
}
