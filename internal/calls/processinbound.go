package calls

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/netconn"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// serve accepts connections on the listening sockets of a message.
func (p *process) serve(m *ipc.Message) error {
	files := m.Files()
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	switch len(files) {
	case 1:
		return p.plane.Accept(files[0], nil)
	case 2:
		return p.plane.Accept(files[0], files[1])
	}
	return outboard.Errorf(outboard.Protocol, m.Type, "%d files", len(files))
}

// servePeer serves another node that has connected to this one. The bytes of read precede those
// still to be received.
func (p *process) servePeer(f *os.File, read []byte) {
	registered := sync.OnceFunc(p.plane.inbound.release)
	defer registered()
	nc, err := ipc.NetConn(f)
	if err != nil {
		p.log.Warn("a connection was not passed", "error", err)
		return
	}
	defer nc.Close()
	unknown, err := p.unknown.Add(nc.RemoteAddr())
	if err != nil {
		p.log.Warn("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
		return
	}
	defer unknown()
	conn := framed.Server(netconn.Prefix(nc, read), p.framed(p.identity.ServerTLS(Protocol)))
	peer, err := p.authenticate(conn)
	known := func() {}
	if err == nil {
		known, err = p.known.AcquireFor(peer.Node)
	}
	if err != nil {
		_ = conn.Close()
		p.log.Warn("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
		return
	}
	defer known()
	unknown()
	p.plane.inbound.serve(p.life, conn, fromNode, string(peer.Node), registered)
}

// handshakeLimit is how long a node may take to prove its identity.
const handshakeLimit = 10 * time.Second

// authenticate waits for a peer's handshake and returns its identity.
func (p *process) authenticate(conn *framed.Conn) (authority.Peer, error) {
	limit, cancel := context.WithTimeout(p.life, handshakeLimit)
	defer cancel()
	if err := conn.Handshake(limit); err != nil {
		return authority.Peer{}, err
	}
	peer, err := p.identity.Verify(conn.Peer())
	if err == nil && peer.Session {
		// A node may name the tenant of a call that it forwards; a program may not.
		err = outboard.Errorf(outboard.Denied, "calls", "a session of node %s is no node", peer.Node)
	}
	return peer, err
}

// serveSibling serves the calls of a sibling's link. It calls registered once Retire waits for the
// link.
func (p *process) serveSibling(f *os.File, registered func()) {
	defer registered()
	nc, err := ipc.NetConn(f)
	if err != nil {
		p.log.Warn("a link was not passed", "error", err)
		return
	}
	p.plane.ServeProcess(p.life, nc, registered)
}
