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
//
// If the node could read the authority's key, Remove renews the key: nodes that are away come back
// with the certificates that they have until away has passed. After an error Remove may be called
// again.
func (p *Pool) Remove(ctx context.Context, name outboard.NodeID, away time.Duration) error {
	op := fmt.Sprintf("remove node %s", name)
	if err := (admission{p}).checkRemoval(op, name, away); err != nil {
		return err
	}
	entry, err := p.state.GetLatest(ctx, identityPrefix+string(name))
	if errors.Is(err, state.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, op, "the pool has no such node: see `outboard nodes`")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := state.CheckRemoval(ctx, p.state, string(name)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	// The revocation comes first: from then on the node can write none of the other records again.
	if err := (admission{p}).revoke(ctx, name, string(entry.Value)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	p.log.Warn("node removed", "removed", name)
	if err := (admission{p}).excludeKeeper(ctx, name, away); err != nil {
		return fmt.Errorf("%s: it is revoked, but the authority's key was not renewed, repeat the command: %w", op, err)
	}
	// Its identity comes last: without it there is nothing to remove.
	return errors.Join(p.deleteRecords(ctx, name), p.deleteKey(ctx, identityPrefix+string(name)))
}

func (a admission) checkRemoval(op string, name outboard.NodeID, away time.Duration) error {
	p := a.p
	switch {
	case name == p.view.self:
		return outboard.Errorf(outboard.Conflict, op, "a node cannot remove itself: run the command on another node")
	case authority.CheckName(name) != nil:
		return authority.CheckName(name)
	case away < 0 || away > authority.MaxAway:
		return outboard.Errorf(outboard.Invalid, op, "nodes may be away for %v: want 0 to %v", away, authority.MaxAway)
	case p.signs():
		return nil
	}
	keepers := strings.Join(p.otherKeepers(), ", ")
	if keepers == "" {
		return outboard.Errorf(outboard.Busy, op, "the copies of the pool's state are moving: repeat the command in a minute")
	}
	return outboard.Errorf(outboard.Denied, op, "this node keeps no copy of the pool's state: run the command on one that does (%s)", keepers)
}

// excludeKeeper removes a node from the cluster of the nodes that keep the state, and renews the
// authority's key if the node could read it. It stores no new key while the node is connected to a
// server that would forward the key to it.
func (a admission) excludeKeeper(ctx context.Context, name outboard.NodeID, away time.Duration) error {
	p := a.p
	if p.state.Role() == "external" {
		return nil // The credentials of the NATS cluster admit nodes: they are to be renewed.
	}
	kept, err := state.KeptCopy(ctx, p.state, string(name))
	if err != nil {
		return err
	}
	if err := p.state.ForgetMember(ctx, string(name)); err != nil || !kept {
		return err
	}
	if err := state.WaitUnrouted(ctx, p.state, string(name)); err != nil {
		return err
	}
	return a.renewAuthority(ctx, away)
}

// otherKeepers returns the names of the other nodes that keep a copy of the state. While the state
// moves to this node, its record may say so before it is true.
func (p *Pool) otherKeepers() []string {
	var names []string
	for _, n := range p.Nodes() {
		if n.Copy && n.ID != p.view.self {
			names = append(names, string(n.ID))
		}
	}
	return names
}

// deleteRecords deletes the table's records of a removed node, its grants, and the tokens that it made.
// The nodes of devices would delete its grants of these, and nobody those of devices that it invented.
func (p *Pool) deleteRecords(ctx context.Context, name outboard.NodeID) error {
	keys := []string{nodePrefix + string(name), admissionPrefix + string(name)}
	for _, prefix := range []string{"endpoints/", "added-endpoints/", "modelreports/"} {
		keys = append(keys, prefix+string(name))
	}
	tokens, err := p.state.Entries(ctx, tokenPrefix)
	errs := []error{err}
	for _, e := range tokens {
		var token storedToken
		if json.Unmarshal(e.Value, &token) != nil || token.By == name {
			keys = append(keys, e.Key)
		}
	}
	described, err := p.state.Entries(ctx, "services/"+string(name)+"/")
	errs = append(errs, err)
	for _, e := range described {
		keys = append(keys, e.Key)
	}
	keys = append(keys, grantKeys(p.view, name)...)
	for _, key := range keys {
		errs = append(errs, p.deleteKey(ctx, key))
	}
	return errors.Join(errs...)
}

func (p *Pool) deleteKey(ctx context.Context, key string) error {
	for {
		entry, err := p.state.GetLatest(ctx, key)
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

// writeIdentity records this node's key if the node can sign nodes itself. The keys of other nodes
// are recorded when they are admitted.
func (p *Pool) writeIdentity(ctx context.Context) error {
	if !p.signs() {
		return nil
	}
	return admission{p}.recordIdentity(ctx, p.view.self, p.id.Fingerprint())
}

// recordIdentity records a node's key, by which it can be removed also while it is down. An
// earlier key of that name is revoked.
func (a admission) recordIdentity(ctx context.Context, name outboard.NodeID, fingerprint string) error {
	key := identityPrefix + string(name)
	entry, err := a.p.state.GetLatest(ctx, key)
	switch {
	case err == nil && string(entry.Value) == fingerprint:
		return nil
	case err == nil:
		err = a.revoke(ctx, name, string(entry.Value))
	case errors.Is(err, state.ErrNotFound):
		err = nil
	}
	if err != nil {
		return err
	}
	_, err = a.p.state.Put(ctx, key, []byte(fingerprint), 0)
	return err
}

// revoke makes all nodes refuse a key.
func (a admission) revoke(ctx context.Context, name outboard.NodeID, fingerprint string) error {
	text, err := json.Marshal(revocation{Node: name, By: a.p.view.self, At: time.Now().UTC()})
	if err != nil {
		return err
	}
	_, err = a.p.state.Put(ctx, revokedPrefix+fingerprint, text, 0)
	return err
}

// applyRevocation refuses a removed node, and removes it from the view. The mutex is held.
func (v *view) applyRevocation(fingerprint string, e state.Entry) error {
	if !strings.EqualFold(fingerprint, v.identity.Fingerprint()) {
		v.identity.Revoke(fingerprint)
	} else {
		v.log.Error("this node does not belong to the pool any more", "error", authority.ErrRemoved)
		authority.MarkRemoved(v.identity)
	}
	for id, h := range v.all {
		if h.value.Fingerprint == fingerprint {
			v.left[id] = h.value.Boot
			delete(v.all, id)
		}
	}
	var r revocation
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return err
	}
	if v.all[r.Node] == nil && r.Node != v.self { // otherwise one with another key has joined since
		v.removed[r.Node] = true
	}
	return nil
}
