// Package netconn wraps network connections, and finds the connection below those that wrap it.
package netconn

import "net"

// A Prefixed is a connection whose first bytes were read already, and are read again.
type Prefixed struct {
	net.Conn
	unread []byte
}

// Prefix returns nc with the bytes of read before those that are still to be received. It keeps read.
func Prefix(nc net.Conn, read []byte) *Prefixed { return &Prefixed{Conn: nc, unread: read} }

// Read returns bytes of the prefix, or reads from the connection once all have been returned.
func (p *Prefixed) Read(b []byte) (int, error) {
	if len(p.unread) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.unread)
	p.unread = p.unread[n:]
	return n, nil
}

// NetConn returns the connection below, as that of [crypto/tls.Conn] does.
func (p *Prefixed) NetConn() net.Conn { return p.Conn }

// Lowest returns the connection below all that wrap it: each has a method NetConn, as
// [crypto/tls.Conn] has.
func Lowest(nc net.Conn) net.Conn {
	for {
		wrapping, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = wrapping.NetConn()
	}
}
