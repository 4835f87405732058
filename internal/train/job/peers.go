package job

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// Peers opens streams to other nodes, over one connection to each.
type Peers struct {
	// Dial connects to a node, whose certificate it checks.
	Dial func(ctx context.Context, node outboard.NodeID) (*framed.Conn, error)

	mu    sync.Mutex
	conns map[outboard.NodeID]*peerConn
}

// A peerConn is a connection, or the attempt to open it.
type peerConn struct {
	ready chan struct{}
	conn  *framed.Conn
	err   error
}

// dialLimit bounds how long connecting to a node may take.
const dialLimit = 10 * time.Second

// open opens a stream to a node.
func (p *Peers) open(ctx context.Context, node outboard.NodeID, method string, use purpose) (*framed.Stream, error) {
	conn, err := p.connect(ctx, node)
	if err != nil {
		return nil, err
	}
	header, err := json.Marshal(use)
	if err != nil {
		return nil, err
	}
	return conn.Open(ctx, method, header)
}

// connect returns the connection to a node, and opens it unless there is a live one.
func (p *Peers) connect(ctx context.Context, node outboard.NodeID) (*framed.Conn, error) {
	p.mu.Lock()
	c := p.conns[node]
	if c == nil || c.dead() {
		if p.conns == nil {
			p.conns = make(map[outboard.NodeID]*peerConn)
		}
		c = &peerConn{ready: make(chan struct{})}
		p.conns[node] = c
		go func() {
			defer close(c.ready)
			ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
			defer cancel()
			c.conn, c.err = p.Dial(ctx, node)
		}()
	}
	p.mu.Unlock()
	select {
	case <-c.ready:
		return c.conn, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dead reports whether connecting has failed, or the connection has ended.
func (c *peerConn) dead() bool {
	select {
	case <-c.ready:
		return c.err != nil || c.conn.Err() != nil
	default:
		return false
	}
}

// Close ends all connections.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, c := range p.conns {
		<-c.ready
		if c.conn != nil {
			_ = c.conn.Close() // Its streams report their own errors.
		}
		delete(p.conns, node)
	}
	return nil
}

// A streamConn is a stream as a net.Conn.
type streamConn struct {
	*framed.Stream

	mu      sync.Mutex
	expires *time.Timer
}

var _ net.Conn = (*streamConn)(nil)

// LocalAddr implements net.Conn.
func (c *streamConn) LocalAddr() net.Addr { return c.Conn().LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *streamConn) RemoteAddr() net.Addr { return c.Conn().RemoteAddr() }

// SetDeadline implements net.Conn: the stream ends at the deadline.
func (c *streamConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expires != nil {
		c.expires.Stop()
		c.expires = nil
	}
	if !t.IsZero() {
		c.expires = time.AfterFunc(time.Until(t), func() {
			c.Reset(outboard.Errorf(outboard.Unreachable, "stream", "its deadline has passed"))
		})
	}
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *streamConn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *streamConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// Close implements net.Conn.
func (c *streamConn) Close() error {
	_ = c.SetDeadline(time.Time{}) // It never fails.
	return c.Stream.Close()
}

// Reset ends the stream with an error that the peer gets. It replaces that of framed.Stream, which knows
// no deadline.
func (c *streamConn) Reset(err error) {
	_ = c.SetDeadline(time.Time{}) // It never fails.
	c.Stream.Reset(err)
}
