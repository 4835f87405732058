package state

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/outboard-run/outboard/internal/pool/guard"
)

// Lend serves the table to an attached helper process over conn, with the permissions of a
// node that keeps no copy, and, unless tenant is empty, only for that tenant. It closes conn
// and returns when either side ends.
func (s *State) Lend(ctx context.Context, conn net.Conn, tenant string) error {
	defer conn.Close()
	if s.server == nil {
		return errors.New("lend the pool's state: it is in an existing NATS cluster")
	}
	inner, err := s.server.InProcessConn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	secret, forget := s.server.clients.admit()
	defer forget()
	p := guardedServer{s}.permissionsOf(s.server.opts.Name, tenant)
	p.keeper = s.KeepsCopy()
	p.mayVersion = func(key string, m guard.Message) error { return guardedServer{s}.mayVersion(p, key, m) }
	return guardedServer{s}.serveGuarded(ctx, p, conn, inner, secret)
}

// ServeLend serves the table to every helper process that connects to l. It closes l and all
// connections when ctx or the state ends, and returns then. A process that can connect has
// the permissions of a node: the socket's folder must be private.
func (s *State) ServeLend(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	serving.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.done:
			cancel()
		}
	})
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil && err == nil:
			return conn.Close()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("lend the pool's state: %w", err)
		case err != nil:
			// The process may be out of descriptors.
			s.log.Warn("lend the pool's state: trying again", "error", err)
			_ = sleep(ctx, retryPause)
			continue
		}
		serving.Go(func() {
			if err := s.Lend(ctx, conn, ""); err != nil && ctx.Err() == nil {
				s.log.Debug("the pool's state is not lent", "error", err)
			}
		})
	}
}
