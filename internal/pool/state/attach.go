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
	Dial   func() (net.Conn, error)
	Logger *slog.Logger
}

// Attach opens the table of a node for a helper process of it: the helper keeps no
// copy, and takes no part in the pool by itself.
func Attach(ctx context.Context, opts AttachOptions) (*State, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{log: opts.Logger, done: make(chan struct{})}
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

// Lend lets a helper process that is attached use the table over conn. It closes
// conn and returns when either side ends.
func (s *State) Lend(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	if s.server == nil {
		return errors.New("lend the pool's state: it is in an existing NATS cluster")
	}
	inner, err := s.server.InProcessConn()
	if err != nil {
		return err
	}
	defer inner.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
		case <-s.done:
		case <-ended:
		}
		_ = inner.Close()
	}()
	join(conn, inner)
	return nil
}
