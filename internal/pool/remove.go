package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// revocation is the value stored under the fingerprint of a removed node.
type revocation struct {
	Node outboard.NodeID `json:"node"`
	By   outboard.NodeID `json:"by"`
	At   time.Time       `json:"at"`
}

// Remove revokes a node: all nodes refuse its key from now on, close its connections, and
// end its leases. It need not be running. A node of that name may join again with a token.
func (p *Pool) Remove(ctx context.Context, name outboard.NodeID) error {
	op := fmt.Sprintf("remove node %s", name)
	if name == p.view.self {
		return outboard.Errorf(outboard.Conflict, op, "a node cannot remove itself: run the command on another node")
	}
	if err := authority.CheckName(name); err != nil {
		return err
	}
	entry, err := p.state.Get(ctx, identityPrefix+string(name))
	if errors.Is(err, state.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, op, "the pool has no such node: see `outboard nodes`")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	text, err := json.Marshal(revocation{Node: name, By: p.view.self, At: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	// The revocation comes first: from then on the node can write none of the rest again.
	if _, err := p.state.Put(ctx, revokedPrefix+string(entry.Value), text, 0); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	p.log.Warn("node removed", "removed", name)
	return p.deleteRecords(ctx, name)
}

// deleteRecords deletes what the table has of a removed node. Its leases are void without
// its record, and deleted by the devices' nodes.
func (p *Pool) deleteRecords(ctx context.Context, name outboard.NodeID) error {
	var errs []error
	for _, key := range []string{nodePrefix + string(name), identityPrefix + string(name)} {
		errs = append(errs, p.deleteKey(ctx, key))
	}
	return errors.Join(append(errs, p.state.ForgetMember(ctx, string(name)))...)
}

func (p *Pool) deleteKey(ctx context.Context, key string) error {
	for {
		entry, err := p.state.Get(ctx, key)
		if errors.Is(err, state.ErrNotFound) {
			return nil
		}
		if err == nil {
			_, err = p.state.Delete(ctx, key, entry.Revision)
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// writeIdentity records the node's key, by which it can be removed also while it is down.
func (p *Pool) writeIdentity(ctx context.Context) error {
	key := identityPrefix + string(p.view.self)
	entry, err := p.state.Get(ctx, key)
	if err == nil && string(entry.Value) == p.id.Fingerprint() {
		return nil
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	_, err = p.state.Put(ctx, key, []byte(p.id.Fingerprint()), 0)
	return err
}

// applyRevocation refuses a removed node, and removes it from the view. The mutex is held.
func (v *view) applyRevocation(fingerprint string) {
	if !strings.EqualFold(fingerprint, v.identity.Fingerprint()) {
		v.identity.Revoke(fingerprint)
	} else {
		v.log.Error("this node was removed from the pool: empty its data directory and join it anew with a token")
	}
	for id, h := range v.all {
		if h.value.Fingerprint == fingerprint {
			v.left[id] = h.value.Boot
			delete(v.all, id)
		}
	}
}
