// Package statetest provides the states of pools for tests.
package statetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Open opens the state of a pool of one node, which ends with the test.
func Open(t testing.TB) *state.State {
	t.Helper()
	s, err := state.Open(t.Context(), state.Options{Dir: t.TempDir(), Name: "harbour", TLS: noRoutes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// noRoutes returns the configuration of routes of a pool without any.
func noRoutes(func(outboard.NodeID) bool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13}
}

// Lend lends a state over a socket, as a node does to its helper processes.
func Lend(t testing.TB, s *state.State) (dial func() (net.Conn, error)) {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.ServeLend(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func() (net.Conn, error) { return unixsock.Dial(ctx, path) }
}

// Attach opens the lent state of a node, which ends with the test.
func Attach(ctx context.Context, t testing.TB, node string, dial func() (net.Conn, error)) *state.State {
	t.Helper()
	return AttachTenant(ctx, t, node, "", dial)
}

// AttachTenant is Attach for a process of a tenant.
func AttachTenant(ctx context.Context, t testing.TB, node, tenant string, dial func() (net.Conn, error)) *state.State {
	t.Helper()
	s, err := state.Attach(ctx, state.AttachOptions{Name: node, Tenant: tenant, Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A Cutter dials connections that can be cut at once, with the data in flight on them.
type Cutter struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
}

// NewCutter returns a Cutter whose connections dial opens.
func NewCutter(dial func() (net.Conn, error)) *Cutter { return &Cutter{dial: dial} }

// Dial opens a connection.
func (c *Cutter) Dial() (net.Conn, error) {
	outer, err := c.dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c.mu.Lock()
	c.conns = append(c.conns, outer, far)
	c.mu.Unlock()
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // until it is cut
		_ = to.Close()
	}
	go copyTo(outer, far)
	go copyTo(far, outer)
	return near, nil
}

// Cut cuts all connections.
func (c *Cutter) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// Eventually waits until f returns true, and calls it after each change.
func Eventually(t testing.TB, changed func() <-chan struct{}, condition string, f func() bool) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		next := changed()
		if f() {
			return
		}
		select {
		case <-next:
		case <-limit.C:
			t.Fatalf("never: %s", condition)
		}
	}
}

// FreePort returns a port of the loopback that nobody listens on, below those that the kernel gives to
// sockets without a port of their own: no other socket gets it before the caller binds it.
func FreePort(t testing.TB) int {
	t.Helper()
	var config net.ListenConfig
	for range 100 {
		port := 10_000 + rand.IntN(20_000) //nolint:gosec // any port
		l, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
