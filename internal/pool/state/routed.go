package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
)

const (
	// routedSubject is where a voter reports the servers to which it has routes.
	routedSubject = "outboard.routed."
	routedPause   = 50 * time.Millisecond
	// unroutedLimit bounds the wait for the end of all routes to a server.
	unroutedLimit = 30 * time.Second
	// formerKeepersKey is the key of the names of nodes that kept a copy once and keep none now.
	formerKeepersKey = "config/former-keepers"
)

// reportRoutes answers requests with the servers to which a server has routes.
func (r *reporter) reportRoutes(srv *natsserver.Server) error {
	_, err := r.nc.Subscribe(routedSubject+srv.Name(), func(m *nats.Msg) {
		if text, err := json.Marshal(routedServers(srv)); err == nil {
			_ = m.Respond(text)
		}
	})
	return err
}

// KeptCopy reports whether a node keeps a copy of the state, or kept one: it could read
// everything, the authority's key included.
func KeptCopy(ctx context.Context, s *State, name string) (bool, error) {
	var voters []member
	var former []string
	if err := s.getJSON(ctx, votersKey, &voters); err != nil {
		return false, err
	}
	if err := s.getJSON(ctx, formerKeepersKey, &former); err != nil {
		return false, err
	}
	return slices.Contains(former, name) || slices.ContainsFunc(voters, func(m member) bool { return m.Name == name }), nil
}

// Keepers returns the names of the nodes that were chosen to keep a copy of the state, none where one
// node or an existing cluster keeps it.
func Keepers(s *State) []string {
	if s.server == nil {
		return nil
	}
	voters, _, _ := s.server.members.view()
	return names(voters)
}

// getJSON decodes the value of a key. It leaves value unchanged if the key has none.
func (t table) getJSON(ctx context.Context, key string, value any) error {
	entry, err := t.GetLatest(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(entry.Value, value)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// WaitUnrouted waits until no voter that answers has a route to a node: later writes do not reach
// that node.
func WaitUnrouted(ctx context.Context, s *State, name string) error {
	ctx, cancel := context.WithTimeout(ctx, unroutedLimit)
	defer cancel()
	var voters []member
	if err := s.getJSON(ctx, votersKey, &voters); err != nil {
		return err
	}
	for {
		routed := ""
		for _, v := range voters {
			if v.Name != name && s.hasRoute(ctx, v.Name, name) {
				routed = v.Name
			}
		}
		if routed == "" {
			return nil
		}
		if sleep(ctx, routedPause) != nil {
			return fmt.Errorf("node %s is still connected to %s: %w", routed, name, ctx.Err())
		}
	}
}

// CheckRemoval refuses the removal of a node without whose copy the state would take no changes: the
// other voters that are left are no majority of the copies. Their servers would keep the connection to
// the removed node, and lose the state when they end it.
func CheckRemoval(ctx context.Context, s *State, name string) error {
	if s.server == nil {
		return nil // The state is in another cluster.
	}
	var voters []member
	if err := s.getJSON(ctx, votersKey, &voters); err != nil {
		return err
	}
	if len(voters) < Copies || !slices.ContainsFunc(voters, func(m member) bool { return m.Name == name }) {
		return nil
	}
	// The table is read, since the view may not know yet of a removal that has just been recorded.
	left := 0
	for _, v := range voters {
		if v.Name == name {
			continue
		}
		switch _, err := s.GetLatest(ctx, memberPrefix+v.Name); {
		case err == nil:
			left++
		case !errors.Is(err, ErrNotFound):
			return err
		}
	}
	if left >= majority {
		return nil
	}
	return outboard.Errorf(outboard.Conflict, "", "node %s keeps one of the last two copies of the pool's state, which would be lost: first have another node join, which then keeps a copy (`outboard token`)", name)
}

// hasRoute reports whether a voter has a route to a node. A voter that does not answer is assumed
// to be down.
func (c *client) hasRoute(ctx context.Context, voter, to string) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, routedSubject+voter, nil)
	if err != nil {
		return false
	}
	var routed map[string]bool
	return json.Unmarshal(m.Data, &routed) != nil || routed[to]
}
