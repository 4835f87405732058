// Package remote carries calls over one framed connection, a stream for each.
package remote

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/fabric/framed"
)

// Options of a connection. The zero value makes calls and serves none.
type Options struct {
	// Handler serves the peer's calls; nil refuses them. Where it is a
	// call.UnaryHandler too, calls of one message each way take that way.
	Handler call.Handler
	// Tenant and Peer go into the heads of the peer's calls.
	Tenant, Peer string
	// Trusted says that the peer is a node of ours: the tenants and peers that
	// the calls' heads name are sent to it and believed from it.
	Trusted bool
	// MaxMessage bounds one message that is received. Default 64 MiB.
	MaxMessage int
	// Logger gets one record for each peer that breaks the protocol. Default: none.
	Logger *slog.Logger
	// Framed is for Dial and Serve, which make the connection.
	Framed framed.Options
	// Accept, if set, is asked by Serve about each peer that has shown its
	// certificate. It may change o for that peer; an error hangs up.
	Accept func(c *framed.Conn, o *Options) error
}

// A Conn carries calls both ways over one connection.
type Conn struct{ framed *framed.Conn }

var (
	_ call.Transport = (*Conn)(nil)
	_ call.Unary     = (*Conn)(nil)
)

// New carries calls over c, which it owns from now on.
func New(c *framed.Conn, o Options) *Conn { panic("soon") }

// Dial connects to addr with TLS.
func Dial(ctx context.Context, addr string, t *tls.Config, o Options) (*Conn, error) { panic("soon") }

// Serve serves the calls of those who connect to l, until ctx ends.
func Serve(ctx context.Context, l net.Listener, t *tls.Config, o Options) error { panic("soon") }

// Open implements call.Transport.
func (c *Conn) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) { panic("soon") }

// Unary implements call.Unary.
func (c *Conn) Unary(ctx context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	panic("soon")
}

// Close ends every call with codes.Unavailable and waits for the handlers.
func (c *Conn) Close() error { panic("soon") }

// Drain asks the peer to open no more calls here, and waits until those that it
// has opened are over.
func (c *Conn) Drain(ctx context.Context) error { panic("soon") }

// Draining is closed when the peer has asked for no more calls, or is gone.
func (c *Conn) Draining() <-chan struct{} { panic("soon") }

// Done is closed when the connection has ended, Err says why.
func (c *Conn) Done() <-chan struct{} { panic("soon") }
func (c *Conn) Err() error            { panic("soon") }
