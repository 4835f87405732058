package state

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/pool/guard"
)

// A Borrower is a helper process of a node, to which the node lends its table.
type Borrower struct {
	// Node is the node's name.
	Node string
	// Tenant is the process's tenant, "" for a process that is none of a tenant.
	Tenant string
}

// memberInterval is how often a node checks that the pool has not removed it, while it lends an
// existing cluster's table.
const memberInterval = time.Second

// Lend serves the table to an attached helper process over conn, with the permissions of a
// node that keeps no copy, and, unless its tenant is empty, only for that tenant. It closes conn
// and returns when either side ends, or when the pool has removed the node.
func (s *State) Lend(ctx context.Context, conn net.Conn, to Borrower) error {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := guardedServer{s}
	inner, credentials, forget, err := g.openInner(ctx)
	if err != nil {
		return fmt.Errorf("lend the pool's state: %w", err)
	}
	defer forget()
	go func() {
		g.waitWhileLending(ctx)
		cancel()
	}()
	p := g.permissionsOf(to.Node, to.Tenant)
	p.keeper = s.server == nil || s.KeepsCopy()
	p.mayVersion = func(key string, m guard.Message) error { return g.mayVersion(p, key, m) }
	return g.serveGuarded(ctx, p, conn, inner, credentials)
}

// openInner opens a connection for a helper process to the server that this node's own client uses,
// with the credentials for it and the function that revokes them.
func (s guardedServer) openInner(ctx context.Context) (inner net.Conn, credentials map[string]string, forget func(), err error) {
	if s.server == nil {
		if err := s.checkMember(); err != nil {
			return nil, nil, nil, err
		}
		inner, credentials, err = dialCluster(ctx, s.nc)
		return inner, credentials, func() {}, err
	}
	if inner, err = s.server.InProcessConn(); err != nil {
		return nil, nil, nil, err
	}
	secret, forget := s.server.clients.admit()
	return inner, tokenOf(secret), forget, nil
}

// waitWhileLending returns when ctx or the state ends, or the pool has removed this node.
func (s guardedServer) waitWhileLending(ctx context.Context) {
	check := time.NewTicker(memberInterval)
	defer check.Stop()
	for s.checkMember() == nil {
		select {
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-check.C:
		}
	}
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
			if err := s.Lend(ctx, conn, Borrower{Node: s.name}); err != nil && ctx.Err() == nil {
				s.log.Debug("the pool's state is not lent", "error", err)
			}
		})
	}
}
