package state

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"
)

// AttachOptions says how a helper process of a node reaches the node's table.
type AttachOptions struct {
	// Dial opens a connection whose other end the node gives to State.Lend.
	Dial func() (net.Conn, error)
	// Name is the node's name, and Tenant that of the process's tenant: the answers to its requests
	// have subjects of their own. "": it is none of a tenant.
	Name   string
	Tenant string
	Logger *slog.Logger
}

// Attach opens the table of a node in a helper process, which keeps no copy and is no member
// of the pool.
func Attach(ctx context.Context, opts AttachOptions) (*State, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{table: newTable(opts.Logger, opts.Name), done: make(chan struct{})}
	s.tenant = opts.Tenant
	if err := s.connect(nats.InProcessServer(dialled(opts.Dial)), nats.RetryOnFailedConnect(true)); err != nil {
		return nil, err
	}
	if err := s.waitTable(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// dialled is a nats.InProcessConnProvider.
type dialled func() (net.Conn, error)

// InProcessConn implements nats.InProcessConnProvider.
func (d dialled) InProcessConn() (net.Conn, error) { return d() }
