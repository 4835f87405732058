package state

import (
	"context"
	"errors"
	"net"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// Protocol is the TLS application protocol of a guest's connection to a node that keeps the table:
// one byte from the node, 1 if it serves the table, then the NATS client protocol.
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
	inner, err := s.server.addGuest(conn, string(name))
	if err != nil {
		return errors.Join(refuse(conn), err)
	}
	defer s.server.removeGuest(conn)
	if _, err := conn.Write([]byte{serves}); err != nil {
		return errors.Join(err, inner.Close())
	}
	secret, forget := s.server.clients.admit()
	defer forget()
	return guardedServer{s}.serveGuarded(ctx, guardedServer{s}.permissionsOf(string(name), ""), conn, inner, tokenOf(secret))
}

// permissionsOf returns the permissions of a node without a copy of the table, or of a tenant's
// process on a node.
func (l guardedServer) permissionsOf(node, tenant string) permissions {
	p := permissions{node: node, tenant: tenant, stores: l.stores, tables: l.tables}
	p.mayVersion = func(key string, m guard.Message) error { return l.mayVersion(p, key, m) }
	p.mayTrim = func(m guard.Message) error { return l.mayTrim(p, m) }
	p.hasApps = l.hasApps
	return p
}

func refuse(conn net.Conn) error {
	_, err := conn.Write([]byte{refuses})
	return err
}

// addGuest opens a connection to the server for a guest.
func (e *embedded) addGuest(conn net.Conn, name string) (net.Conn, error) {
	ready := e.role.get().Ready
	// Refused, the guest tries the next node. If it waited here, it would wait for ever.
	if e.isolated.Load() {
		return nil, ErrElsewhere
	}
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

// dropGuests closes the connections of all guests, and refuses them while isolated: this
// voter reaches no majority, and another one may.
func (e *embedded) dropGuests() {
	e.isolated.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.guests {
		_ = conn.Close()
	}
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
