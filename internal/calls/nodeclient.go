package calls

import (
	"context"
	"net"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// link connects to a sibling: another process of the node.
func (p *process) link(ctx context.Context, process int) (net.Conn, error) {
	m, err := p.node.Call(ctx, msgLink, &body{Process: process})
	if err != nil {
		return nil, err
	}
	return ipc.NetConn(detachFile(m))
}

// locateStream returns the endpoint of a stream that a sibling carries, "" for none.
func (p *process) locateStream(ctx context.Context, stream string) string {
	m, err := p.node.Call(ctx, msgLocate, &body{ID: stream})
	if err != nil {
		return ""
	}
	b, err := bodyOf(m)
	if err != nil {
		return ""
	}
	return b.ID
}

// identify implements Identifier by asking the node, which has issued the credentials.
func (p *process) identify(ctx context.Context, credential string) (string, error) {
	m, err := p.node.Call(ctx, msgIdentify, &body{ID: credential})
	if err != nil {
		return "", err
	}
	b, err := bodyOf(m)
	return b.ID, err
}

// admit implements Admitter by asking the node, which has started the processes that it refuses. A
// node of an earlier version does not know the request, and refuses none.
func (p *process) admit(ctx context.Context, pid int) (Admission, error) {
	m, err := p.node.Call(ctx, msgAdmit, &body{Process: pid})
	if outboard.KindOf(err) == outboard.Protocol {
		return AdmitProgram, nil
	}
	if err != nil {
		return "", err
	}
	b, err := bodyOf(m)
	return Admission(b.ID), err
}

// nodeOffers publishes endpoints through the node.
type nodeOffers struct{ node *ipc.Conn }

// Offer implements Offers.
func (o *nodeOffers) Offer(ctx context.Context, e services.Endpoint, previous string) (services.Endpoint, error) {
	m, err := o.node.Call(ctx, msgOffer, &body{Endpoint: &e, Previous: previous})
	if err != nil {
		return e, err
	}
	b, err := bodyOf(m)
	if err == nil && b.Endpoint == nil {
		err = outboard.Errorf(outboard.Protocol, "offer", "the node's reply has no ID")
	}
	if err != nil {
		return e, err
	}
	return *b.Endpoint, nil
}

// Settled implements Offers.
func (o *nodeOffers) Settled(id string) {
	// An error means that the node is gone, and with it this process.
	_ = o.node.Send(msgSettled, &body{ID: id})
}

// Withdraw implements Offers.
func (o *nodeOffers) Withdraw(ctx context.Context, id string) error {
	m, err := o.node.Call(ctx, msgWithdraw, &body{ID: id})
	if err == nil {
		m.Close()
		return nil
	}
	select {
	case <-o.node.Done():
		return nil // the node withdraws the endpoints of a process that has ended
	default:
		return err
	}
}
