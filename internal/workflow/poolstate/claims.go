package poolstate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// ClaimsOptions configure Claims: where executions run and when this process can run them.
type ClaimsOptions struct {
	Tenant  string
	Self    outboard.NodeID
	Members Members
	Log     *state.Log // of the executions
	// Ready is closed when the process is ready.
	Ready <-chan struct{}
	// Serving reports whether an app is ready here, and Await waits until it is, or can't be.
	Serving func(app string) bool
	Await   func(ctx context.Context, app string) error
	Logger  *slog.Logger
}

// Claims implements engine.Claims by the records of the executions, which name their owner.
type Claims struct {
	opts   ClaimsOptions
	owners *Owners
	prefix string // of the tenant's keys
}

var _ engine.Claims = (*Claims)(nil)

// NewClaims returns the claims of a tenant's executions.
func NewClaims(o ClaimsOptions) *Claims {
	prefix := o.Tenant + "/"
	return &Claims{opts: o, prefix: prefix, owners: NewOwners(OwnersOptions{
		Members: o.Members, Self: o.Self, Logger: o.Logger, Prefix: prefix, Keys: o.Log.Keys,
		Owner: func(ctx context.Context, key string) (outboard.NodeID, bool, error) {
			return lastOwner(ctx, o.Log, key)
		},
	})}
}

// lastOwner returns the node that an execution's records name last.
func lastOwner(ctx context.Context, log *state.Log, key string) (node outboard.NodeID, over bool, err error) {
	records, err := log.Read(ctx, key)
	for _, r := range records {
		var e core.Event
		if json.Unmarshal(r.Data, &e) != nil {
			continue // the engine reports what is wrong with it
		}
		switch {
		case e.Started != nil:
			node = outboard.NodeID(e.Started.Node)
		case e.TakenOver != nil:
			node = outboard.NodeID(e.TakenOver.Node)
		case e.Finished != nil:
			over = true
		}
	}
	return node, over, err
}

// Claim implements engine.Claims.
func (c *Claims) Claim(ctx context.Context, id engine.ID) error {
	err := c.owners.Claim(ctx, c.prefix+string(id))
	if errors.Is(err, ErrOwned) {
		return engine.ErrClaimed
	}
	return err
}

// ClaimNew implements engine.Claims. It reads nothing: the start is appended on the condition that
// there is no record.
func (c *Claims) ClaimNew(_ context.Context, id engine.ID) error {
	c.owners.add(c.prefix + string(id))
	return nil
}

// Release implements engine.Claims.
func (c *Claims) Release(_ context.Context, id engine.ID) error {
	c.owners.Release(c.prefix + string(id))
	return nil
}

// Orphans implements engine.Claims. It waits until the process is ready: after the death of a node
// thousands of executions may have to be read, and calls of functions do not wait for that. An
// execution whose app is still loading is reported when the app is ready; it does not delay others.
func (c *Claims) Orphans(ctx context.Context, f func(engine.ID)) error {
	select {
	case <-c.opts.Ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	return c.owners.Orphans(ctx, func(key string) {
		id := engine.ID(strings.TrimPrefix(key, c.prefix))
		if c.opts.Serving(id.App()) {
			f(id)
			return
		}
		// Another node, which serves the app already, may take it first.
		waiting.Go(func() {
			_ = c.opts.Await(ctx, id.App()) // the engine reports what is wrong with the app
			if ctx.Err() == nil {
				f(id)
			}
		})
	})
}
