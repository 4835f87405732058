package node

import (
	"net"
	"time"

	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/gateway"
)

// maxRefusals bounds the refused connections of a port that are answered at a time.
const maxRefusals = 128

// clientConns bounds the connections of a port's clients: their number, the share of an address
// (acceptor.Slots), and how long a client may make a write wait.
type clientConns struct {
	slots    *acceptor.Slots
	timeout  time.Duration
	refusals chan struct{}
}

// newClientConns returns the bounds of a port with at most so many connections.
func newClientConns(most int, timeout time.Duration) *clientConns {
	return &clientConns{slots: acceptor.NewSlots(most), timeout: timeout, refusals: make(chan struct{}, maxRefusals)}
}

// admit returns a connection that counts until it is closed, and whose writes fail if its client makes
// them wait for longer than the timeout (gateway.PaceConn). It returns nil for a connection beyond the
// bounds, which it answers with an error (status 429) and closes.
func (c *clientConns) admit(conn net.Conn) net.Conn {
	release, err := c.slots.Acquire(conn.RemoteAddr())
	if err == nil {
		return acceptor.Counted(gateway.PaceConn(conn, c.timeout), release)
	}
	select {
	case c.refusals <- struct{}{}:
		go func() {
			defer func() { <-c.refusals }()
			gateway.Refuse(conn, err)
		}()
	default:
		_ = conn.Close() // too many clients are refused
	}
	return nil
}

// clientListener accepts the connections of clients that their bounds admit.
type clientListener struct {
	net.Listener
	clients *clientConns
}

// Accept implements net.Listener.
func (l *clientListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.clients.admit(conn); admitted != nil {
			return admitted, nil
		}
	}
}
