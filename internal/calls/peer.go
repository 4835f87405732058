package calls

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// endpointKey is the metadata key by which nodes name the endpoint of a call.
const endpointKey = offer.EndpointKey

// dialLimit bounds the time to connect to another node.
const dialLimit = 5 * time.Second

// A peer is another node or a sibling process, and the connection that calls to it share. The first
// call that needs the connection opens it.
type peer struct {
	name      string
	life      *lifetime
	dial      func(context.Context) (*remote.Conn, error)
	endpoints map[string]*peerEndpoint // by their IDs; under transports.mu

	mu      sync.Mutex
	current *connection  // nil: none
	attempt *dialAttempt // nil: none is in progress
	closed  bool
}

func newPeer(name string, life *lifetime, dial func(context.Context) (*remote.Conn, error)) *peer {
	return &peer{name: name, life: life, dial: dial, endpoints: map[string]*peerEndpoint{}}
}

// endpoint returns the transport of an endpoint, created by create the first time. The mutex of
// transports is held.
func (p *peer) endpoint(id string, create func() *peerEndpoint) *peerEndpoint {
	e := p.endpoints[id]
	if e == nil {
		e = create()
		p.endpoints[id] = e
	}
	return e
}

// retainEndpoints drops the endpoints that are not used, and returns how many are left. The mutex
// of transports is held.
func (p *peer) retainEndpoints(used map[call.Transport]bool) int {
	for id, e := range p.endpoints {
		if !used[e] {
			delete(p.endpoints, id)
		}
	}
	return len(p.endpoints)
}

// A dialAttempt is an attempt to connect that all calls await, each with its own context.
type dialAttempt struct {
	done chan struct{} // closed when the other fields are set
	conn *connection
	err  error
}

// connect returns the connection, a new one if the last has ended or drains.
func (p *peer) connect(ctx context.Context) (*connection, error) {
	p.mu.Lock()
	if p.current != nil && p.current.usable() {
		defer p.mu.Unlock()
		return p.current, nil
	}
	if p.closed {
		defer p.mu.Unlock()
		return nil, unreachableError{p.name + " has no endpoints any more"}
	}
	a := p.attempt
	if a == nil {
		a = &dialAttempt{done: make(chan struct{})}
		p.attempt = a
		p.life.Go(func() { p.attemptDial(a) })
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, abandonedError{unreachableError{p.name + ": " + context.Cause(ctx).Error()}, ctx.Err()}
	case <-p.life.ctx.Done():
		return nil, unreachableError{p.name + ": " + context.Cause(p.life.ctx).Error()}
	}
}

// attemptDial opens the connection that replaces the current one.
func (p *peer) attemptDial(a *dialAttempt) {
	ctx, cancel := context.WithTimeout(p.life.ctx, dialLimit)
	defer cancel()
	conn, err := p.dial(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(a.done)
	p.attempt = nil
	switch {
	case err != nil:
		a.err = unreachableError{p.name + ": " + err.Error()}
	case p.closed:
		_ = conn.Close()
		a.err = unreachableError{p.name + " has no endpoints any more"}
	default:
		p.supersede()
		c := &connection{conn: conn, superseded: make(chan struct{})}
		p.current, a.conn = c, c
		p.life.Go(func() { c.finish(p.life.ctx) })
	}
}

// supersede ends the current connection once its calls are over. The mutex is held.
func (p *peer) supersede() {
	if p.current != nil {
		close(p.current.superseded)
		p.current = nil
	}
}

// retire allows no more connections, and ends the current one once its calls are over.
func (p *peer) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.supersede()
}

func (p *peer) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.current == nil {
		return nil
	}
	return p.current.conn.Close()
}

// A connection is one connection to a peer, with the streams on it.
type connection struct {
	conn       *remote.Conn
	fleet      transit.StreamSet
	superseded chan struct{} // closed when new calls use another connection
}

// usable reports whether new calls may use the connection.
func (c *connection) usable() bool {
	select {
	case <-c.conn.Draining():
		return false
	case <-c.conn.Done():
		return false
	default:
		return true
	}
}

// finish waits until new calls use another connection, moves the streams there, and closes this one
// when its other calls are over.
func (c *connection) finish(life context.Context) {
	select {
	case <-c.conn.Draining():
	case <-c.superseded:
	case <-life.Done():
	}
	ctx, stop := context.WithCancel(life)
	var moving sync.WaitGroup
	defer moving.Wait()
	defer stop()
	moving.Go(func() { c.fleet.Move(ctx) })
	// An error means that the Plane ends, and with it every call.
	_ = c.conn.Finish(life)
	_ = c.conn.Close()
}

// An unreachableError is the error of a call for which there was no connection.
type unreachableError struct{ text string }

func (e unreachableError) Error() string { return e.text }

// GRPCStatus implements the interface that package status recognises.
func (e unreachableError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.text) }

// An abandonedError is the error of a call that ended, by its deadline or its caller, before there was a
// connection.
type abandonedError struct {
	unreachableError
	reason error // of the call's context
}

// GRPCStatus implements the interface that package status recognises.
func (e abandonedError) GRPCStatus() *status.Status {
	return status.New(status.FromContextError(e.reason).Code(), e.text)
}

// Unsent reports that the callee never saw the call.
func (unreachableError) Unsent() bool { return true }

// unsent reports whether the callee never saw a call that failed.
func unsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

// A peerEndpoint is the transport of an endpoint of another node, or of a sibling process.
type peerEndpoint struct {
	id string
	// locate returns the route of the next attempt: a transport, or else a peer.
	locate  func() (call.Transport, *peer)
	sibling bool // it is an endpoint of this node
}

var _ interface {
	call.Transport
	call.Unary
} = (*peerEndpoint)(nil)

// maxAttempts bounds how often a call is sent on another connection because the peer drains the one
// that it was sent on: the peer has not seen the call then. The process that serves an endpoint of
// this node may change meanwhile, so each attempt locates it anew.
const maxAttempts = 12

// A sendFunc makes a call over t. fleet holds the streams on t; it is nil if they never have to
// move.
type sendFunc func(t call.Transport, fleet *transit.StreamSet, h *call.Head) error

// send makes a call by f, and repeats attempts that the callee never saw.
func (e *peerEndpoint) send(ctx context.Context, f sendFunc, h *call.Head) error {
	var err error
	for n := range maxAttempts {
		if n > 1 && !sleep(ctx, time.Duration(n)*5*time.Millisecond) {
			break
		}
		var final bool
		if final, err = e.attempt(ctx, f, h); final || !unsent(err) {
			return err
		}
	}
	return err
}

// attempt makes a call once. final: another attempt would fail as well.
func (e *peerEndpoint) attempt(ctx context.Context, f sendFunc, h *call.Head) (final bool, err error) {
	t, peer := e.locate()
	switch {
	case t != nil:
		return false, f(t, nil, h)
	case e.sibling && transit.IsMove(h):
		// Otherwise the call would return to the process that it is to leave.
		return false, unreachableError{"the endpoint's program has not moved to the new process yet"}
	}
	c, err := peer.connect(ctx)
	if err != nil {
		return !e.sibling, err // the router knows other endpoints
	}
	err = f(c.conn, &c.fleet, e.addressed(h))
	var gone unreachableError
	// The other node has lost the endpoint: the router knows other endpoints.
	return !e.sibling && errors.As(err, &gone), err
}

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Open implements call.Transport. A stream moves to another connection when the peer drains its
// present one.
func (e *peerEndpoint) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if !h.Streaming {
		s, _, err := e.openLeg(ctx, h)
		return s, err
	}
	return transit.Open(ctx, h, e.openLeg)
}

// openLeg implements transit.OpenFunc.
func (e *peerEndpoint) openLeg(ctx context.Context, h *call.Head) (s call.ClientStream, fleet *transit.StreamSet, err error) {
	err = e.send(ctx, func(t call.Transport, of *transit.StreamSet, h *call.Head) (err error) {
		fleet = of
		s, err = t.Open(ctx, h)
		if err == nil && of != nil {
			s = peerStream{s}
		}
		return err
	}, h)
	return s, fleet, err
}

// A peerStream is a stream to a peer. A stream that no program received, as the peer marks in the
// trailer, ends with an unreachableError.
type peerStream struct{ call.ClientStream }

// Recv implements call.ClientStream.
func (s peerStream) Recv() (*call.Message, error) {
	m, err := s.ClientStream.Recv()
	if err != nil && err != io.EOF && s.ClientStream.Trailer()[offer.UnsentKey] != nil { //nolint:errorlint // a wrapped one is no clean end
		return nil, unreachableError{status.Convert(err).Message()}
	}
	return m, err
}

// Trailer implements call.ClientStream.
func (s peerStream) Trailer() metadata.MD { return trailerOf(s.ClientStream.Trailer(), nil) }

// Unary implements call.Unary.
func (e *peerEndpoint) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	var response *call.Message
	var end call.End
	err := e.send(ctx, func(t call.Transport, _ *transit.StreamSet, h *call.Head) (err error) {
		again := *request
		again.Release = nil
		if u, ok := t.(call.Unary); ok {
			response, end, err = u.Unary(ctx, h, &again)
		} else {
			response, end, err = unaryOverStream(ctx, t, h, &again)
		}
		if err != nil && len(end.Trailer.Get(offer.UnsentKey)) > 0 {
			return unreachableError{status.Convert(err).Message()}
		}
		return err
	}, h)
	if !unsent(err) {
		request.Free()
	}
	return response, end, err
}

// Close implements call.Transport. It does nothing: the connection belongs to the peer.
func (e *peerEndpoint) Close() error { return nil }

// addressed returns a copy of a head that names the endpoint.
func (e *peerEndpoint) addressed(h *call.Head) *call.Head {
	h = h.Clone()
	h.Metadata = h.Metadata.Copy()
	if h.Metadata == nil {
		h.Metadata = metadata.MD{}
	}
	h.Metadata.Set(endpointKey, e.id)
	return h
}
