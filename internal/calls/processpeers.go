package calls

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

func (p *process) serve(m *message) error {
	defer m.close()
	switch len(m.files) {
	case 1:
		return p.plane.Accept(m.files[0], nil)
	case 2:
		return p.plane.Accept(m.files[0], m.files[1])
	}
	return outboard.Errorf(outboard.Protocol, m.Type, "%d files", len(m.files))
}

// servePeer serves another node that has connected to this one.
func (p *process) servePeer(m *message) {
	arrived := sync.OnceFunc(p.plane.arrived)
	defer arrived()
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a connection was not passed", "error", err)
		return
	}
	defer nc.Close()
	conn := framed.Server(&replay{nc, io.MultiReader(bytes.NewReader(m.Data), nc)}, p.framed(p.identity.ServerTLS(Protocol)))
	peer, err := p.greet(conn)
	if err != nil {
		_ = conn.Close()
		p.log.Warn("peer refused", "peer", nc.RemoteAddr().String(), "error", err)
		return
	}
	_ = p.plane.servePeer(p.life, conn, peer.Node, arrived)
}

// greetLimit is how long a node may take to show who it is.
const greetLimit = 10 * time.Second

func (p *process) greet(conn *framed.Conn) (authority.Peer, error) {
	limit, cancel := context.WithTimeout(p.life, greetLimit)
	defer cancel()
	if err := conn.Handshake(limit); err != nil {
		return authority.Peer{}, err
	}
	peer, err := authority.VerifyPeer(p.identity.Root, conn.Peer(), time.Now())
	if err == nil && peer.Session {
		// Nodes are believed when they say for whom they call; a program is not.
		err = outboard.Errorf(outboard.Denied, "calls", "a session of node %s is no node", peer.Node)
	}
	return peer, err
}

// replay reads what was seen once more before anything new.
type replay struct {
	net.Conn
	io.Reader
}

func (r *replay) Read(b []byte) (int, error) { return r.Reader.Read(b) }

func (p *process) serveNear(m *message) {
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a link was not passed", "error", err)
		return
	}
	_ = p.plane.ServeProcess(p.life, nc)
}
