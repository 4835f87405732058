package calls

import (
	"context"
	"net"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// link is a connection to another process of the node.
func (p *process) link(ctx context.Context, process int) (net.Conn, error) {
	a, err := p.control.ask(ctx, &message{Type: msgLink, Process: process})
	if err != nil {
		return nil, err
	}
	return connOf(a.file())
}

// elsewhere asks the node which endpoint has a stream.
func (p *process) elsewhere(ctx context.Context, stream string) string {
	a, err := p.control.ask(ctx, &message{Type: msgWhere, ID: stream})
	if err != nil {
		return ""
	}
	return a.ID
}

// offers asks the node.
type offers struct{ control *control }

// Offer implements Offers.
func (o *offers) Offer(ctx context.Context, e services.Endpoint, previous string) (services.Endpoint, error) {
	a, err := o.control.ask(ctx, &message{Type: msgOffer, Endpoint: &e, Previous: previous})
	if err != nil {
		return e, err
	}
	if a.Endpoint == nil {
		return e, outboard.Errorf(outboard.Protocol, "offer", "the node gave no ID")
	}
	return *a.Endpoint, nil
}

// Settled implements Offers.
func (o *offers) Settled(id string) {
	// Its error is that the node is gone, and with it this process.
	_ = o.control.tell(&message{Type: msgSettled, ID: id})
}

// Withdraw implements Offers.
func (o *offers) Withdraw(ctx context.Context, id string) error {
	_, err := o.control.ask(ctx, &message{Type: msgWithdraw, ID: id})
	if err != nil && o.control.over() {
		return nil // the node knows that all of this process's are gone
	}
	return err
}
