package node

import (
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
)

// countedConn frees its slot when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// countConn returns a connection for which the caller has put a value into open.
func countConn(conn net.Conn, open <-chan struct{}) *countedConn {
	return &countedConn{Conn: conn, release: sync.OnceFunc(func() { <-open })}
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// clientListener accepts connections of clients: a bounded number at a time. A connection ends when
// its client makes a write wait for longer than timeout (gateway.PaceConn).
type clientListener struct {
	net.Listener
	timeout time.Duration
	open    chan struct{} // a slot for each open connection
}

// Accept implements net.Listener. Connections beyond the bound are closed.
func (l *clientListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.open <- struct{}{}:
			return countConn(gateway.PaceConn(conn, l.timeout), l.open), nil
		default:
			_ = conn.Close() // too many are open
		}
	}
}
