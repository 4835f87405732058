package calls

import (
	"context"
	"fmt"
	"net"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// While one process takes a node's calls over from another both have programs, and
// each reaches the other's over a link.

// beside is the way to an endpoint whose program another process of this node has,
// nil where that is no other. The mutex is held.
func (p *Plane) beside(e services.Endpoint) call.Transport {
	if p.opts.Link == nil || e.Process == 0 || e.Process == p.opts.Process {
		return nil
	}
	n := p.beyond(e.Process)
	d := n.ways[e.ID]
	if d == nil {
		d = &distant{id: e.ID, near: true, find: func() (call.Transport, *peer) { return p.find(e) }}
		n.ways[e.ID] = d
	}
	return d
}

// find says who has an endpoint by now: this process, or the one of the table.
func (p *Plane) find(e services.Endpoint) (call.Transport, *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.local[e.ID]; g != nil {
		return g.conn, nil
	}
	if now, ok := p.registry.Endpoint(e.ID); ok && now.Process != p.opts.Process {
		e = now
	}
	return nil, p.beyond(e.Process)
}

// beyond is another process. The mutex is held.
func (p *Plane) beyond(process int) *peer {
	n := p.near[process]
	if n == nil {
		n = p.newPeer(fmt.Sprintf("process %d", process), func(ctx context.Context) (*remote.Conn, error) { return p.dialProcess(ctx, process) })
		p.near[process] = n
	}
	return n
}

func (p *Plane) dialProcess(ctx context.Context, process int) (*remote.Conn, error) {
	nc, err := p.opts.Link(ctx, process)
	if err != nil {
		return nil, err
	}
	return remote.New(framed.Client(nc, p.forProcesses()), remote.Options{Trusted: true, Logger: p.log}), nil
}

// forProcesses are for links. Whoever is at the other end is not checked: the node
// has made the link.
func (p *Plane) forProcesses() framed.Options {
	return framed.Options{Logger: p.opts.Framed.Logger, DeadAfter: p.opts.Framed.DeadAfter}
}

// ServeProcess serves the calls that another process of this node sends here, until
// the connection ends.
func (p *Plane) ServeProcess(ctx context.Context, nc net.Conn) error {
	return p.serveInbound(ctx, framed.Server(nc, p.forProcesses()), fromProcess, "", func() {})
}
