package acceptor

import "net"

// Counted returns a connection that calls release, such as that of Slots.Acquire, with each Close.
func Counted(conn net.Conn, release func()) net.Conn { return &countedConn{conn, release} }

type countedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
