package plain

import (
	"net"

	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
)

const (
	// defaultMaxConns is the default of Options.MaxConns, unless the process may have too few
	// descriptors.
	defaultMaxConns = 20_000
	// connsPercent bounds the default, in percent of the process's descriptors.
	connsPercent = 30
)

// tooManyConns is the reason for which a server closes a connection that it has just accepted.
const tooManyConns grpcconn.Reason = "connections"

// A boundedListener accepts the connections for which the server has room. It closes others without an
// answer: a client that had the server's SETTINGS would take its attempt for a success, and connect
// again without delay.
type boundedListener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, err := l.server.conns.Acquire(conn.RemoteAddr())
		if err == nil {
			return acceptor.Counted(conn, release), nil
		}
		l.server.refused(tooManyConns, err)
		_ = conn.Close()
	}
}
