package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// claims says which node runs an execution: it implements engine.Claims.
type claims struct {
	owners *catalog.Owners
	prefix string // of the tenant's keys
	up     <-chan struct{}
	tenant *Tenant
}

func (t *Tenant) claims(log *state.Log) claims {
	prefix := t.config.Tenant + "/"
	return claims{prefix: prefix, up: t.up, tenant: t, owners: catalog.NewOwners(catalog.OwnersOptions{
		Members: &t.members, Self: t.config.Node, Logger: t.log, Prefix: prefix, Keys: log.Keys,
		Owner: func(ctx context.Context, key string) (outboard.NodeID, bool, error) { return ownerIn(ctx, log, key) },
	})}
}

// ownerIn finds the node that an execution's records name last.
func ownerIn(ctx context.Context, log *state.Log, key string) (node outboard.NodeID, over bool, err error) {
	records, err := log.Read(ctx, key)
	for _, r := range records {
		var e core.Event
		if json.Unmarshal(r.Data, &e) != nil {
			continue // the engine will say what is wrong with it
		}
		switch {
		case e.Started != nil:
			node = outboard.NodeID(e.Started.Node)
		case e.Taken != nil:
			node = outboard.NodeID(e.Taken.Node)
		case e.Finished != nil:
			over = true
		}
	}
	return node, over, err
}

// Claim implements engine.Claims.
func (c claims) Claim(ctx context.Context, id engine.ID) error {
	err := c.owners.Claim(ctx, c.prefix+string(id))
	if errors.Is(err, catalog.ErrOwned) {
		return engine.ErrClaimed
	}
	return err
}

// Release implements engine.Claims.
func (c claims) Release(_ context.Context, id engine.ID) error {
	c.owners.Release(c.prefix + string(id))
	return nil
}

// Orphans implements engine.Claims. It waits until the process is ready: after the death of
// a node thousands of executions may have to be read, and who wants to call a function does
// not wait for them. One whose app is not ready yet is told of when that is: those that wait
// to be taken over are not held up by it.
func (c claims) Orphans(ctx context.Context, f func(engine.ID)) error {
	select {
	case <-c.up:
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	return c.owners.Orphans(ctx, func(key string) {
		id := engine.ID(strings.TrimPrefix(key, c.prefix))
		if c.tenant.current(id.App()) != nil {
			f(id)
			return
		}
		// Another node, which serves the app already, may take it first.
		waiting.Go(func() {
			_ = c.tenant.awaitServed(ctx, id.App()) // the engine says what is wrong with it
			if ctx.Err() == nil {
				f(id)
			}
		})
	})
}

// members are the nodes of the pool, as this process's node has told. The zero value
// knows none.
type members struct {
	mu      sync.Mutex
	nodes   []outboard.Node
	changed chan struct{}
}

// set replaces them.
func (m *members) set(nodes []outboard.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = nodes
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Nodes implements apps.Members.
func (m *members) Nodes() []outboard.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes
}

// Changed implements apps.Members.
func (m *members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// heard says that they are known.
func (m *members) heard() bool { return len(m.Nodes()) > 0 }

// others are the nodes but this one.
func (m *members) others(self outboard.NodeID) []outboard.NodeID {
	var all []outboard.NodeID
	for _, n := range m.Nodes() {
		if n.ID != self {
			all = append(all, n.ID)
		}
	}
	return all
}
