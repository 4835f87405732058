package state

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/outboard-run/outboard"
)

// Protocol is the TLS application protocol of a guest's connection to a node
// that keeps the table: one byte, 1 when it does, then the NATS client protocol.
const Protocol = "outboard-state/1"

const (
	refuses byte = 0
	serves  byte = 1
)

// ServeConn serves the table to a node without a copy, whose name the caller has
// authenticated. It closes conn and returns when either side ends.
func (s *State) ServeConn(ctx context.Context, conn net.Conn, name outboard.NodeID) error {
	defer conn.Close()
	if s.server == nil {
		return errors.Join(refuse(conn), errors.New("serve the pool's state: it is in an existing NATS cluster"))
	}
	return s.server.serve(ctx, conn, string(name))
}

func refuse(conn net.Conn) error {
	_, err := conn.Write([]byte{refuses})
	return err
}

func (e *embedded) serve(ctx context.Context, conn net.Conn, name string) error {
	inner, err := e.addGuest(conn, name)
	if err != nil {
		return errors.Join(refuse(conn), err)
	}
	defer e.removeGuest(conn)
	defer inner.Close()
	if _, err := conn.Write([]byte{serves}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	pipe(conn, inner)
	return nil
}

// addGuest opens a connection to the server for a guest.
func (e *embedded) addGuest(conn net.Conn, name string) (net.Conn, error) {
	ready := e.role.get().Ready
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.srv == nil || !ready:
		return nil, ErrElsewhere
	case e.moving:
		return nil, errMoving
	}
	inner, err := e.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	e.guests[conn] = name
	e.serving.Add(1)
	return inner, nil
}

func (e *embedded) removeGuest(conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.guests, conn)
	e.serving.Done()
}

// connectedGuests returns the names of the connected guests.
func (e *embedded) connectedGuests() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make(map[string]bool, len(e.guests))
	for _, name := range e.guests {
		names[name] = true
	}
	return names
}

// pipe copies between two connections until one of them ends.
func pipe(a, b net.Conn) {
	var both sync.WaitGroup
	half := func(to, from net.Conn) {
		// The error is that one side has ended, which ends the other.
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { half(a, b) })
	both.Go(func() { half(b, a) })
	both.Wait()
}
