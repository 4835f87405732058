package pool

import (
	"context"
	"errors"
	"time"

	"github.com/outboard-run/outboard"
)

// catchUp bounds how long a check waits for the view to include the claimed lease: during the
// move to three copies watchers receive nothing for some seconds.
const catchUp = 5 * time.Second

// Claim signs the proof that this node holds a lease, for the device's node.
func (p *Pool) Claim(lease outboard.Lease) ([]byte, error) {
	return p.id.SignClaim(lease, time.Now())
}

// Check verifies a claim on the device's node: the signature and its chain, that the device
// belongs to this node, and that the lease is valid in this node's own view of the pool, after
// waiting briefly for the view to catch up. It returns the lease as the pool stores it, and
// its holder, which must be the node on the other side of the connection or the node of its
// session. Every refusal is of kind Denied or LeaseLost.
func (p *Pool) Check(ctx context.Context, claim []byte) (outboard.Lease, outboard.Node, error) {
	var none outboard.Lease
	lease, peer, err := p.id.VerifyClaim(claim, time.Now())
	if err != nil {
		return none, outboard.Node{}, err
	}
	op := "claim of " + string(lease.Device)
	if !p.owns(lease.Device) {
		return none, outboard.Node{}, outboard.Errorf(outboard.Denied, op, "node %s has no such device", p.view.self)
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := p.view.waitForRevision(ctx, lease.Fence); err != nil {
		return none, outboard.Node{}, outboard.Errorf(outboard.Denied, op, "this node does not know that lease: %w", err)
	}
	stands, ok := p.view.find(lease.Device, lease.Holder, lease.Lease)
	if !ok || stands.Boot != lease.Boot {
		return none, outboard.Node{}, outboard.Errorf(outboard.LeaseLost, op, "the lease expired, was given back or taken back")
	}
	// Holders write their own grants: a hostile holder may write more than the device has.
	if err := waitForShare(ctx, p.view, p.deviceOf(lease.Device), stands); err != nil {
		return none, outboard.Node{}, outboard.Errorf(outboard.Denied, op, "%w", err)
	}
	// A holder whose heartbeats are late keeps its leases (isVoid), and may use them.
	holder, ok := waitForRecord(ctx, p.view, lease.Holder)
	if !ok || holder.Fingerprint != peer.Fingerprint {
		return none, outboard.Node{}, outboard.Errorf(outboard.Denied, op, "node %s is not in the pool with that key", lease.Holder)
	}
	return stands, holder, nil
}

// WaitForNode returns the last record of a node, after waiting for up to 5 seconds for one: a live
// node's record that expired while the table had no leader comes back with the next heartbeat. It does
// not wait for a node that has left or was removed.
func WaitForNode(ctx context.Context, p *Pool, id outboard.NodeID) (outboard.Node, bool) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	return waitForRecord(ctx, p.view, id)
}

// waitForRecord returns the last record of a node. It waits until ctx ends for one, unless the node
// has left or was removed. While the table has no leader, records expire that nobody can write again.
func waitForRecord(ctx context.Context, v *view, id outboard.NodeID) (outboard.Node, bool) {
	for {
		changed := v.changed()
		if n, ok := lastRecord(v, id); ok {
			return n, true
		}
		if hasDeparted(v, id) {
			return outboard.Node{}, false
		}
		select {
		case <-ctx.Done():
			return outboard.Node{}, false
		case <-changed:
		}
	}
}

func (p *Pool) owns(id outboard.DeviceID) bool { return p.deviceOf(id).ID != "" }

// deviceOf returns a device of this node, the zero value for none.
func (p *Pool) deviceOf(id outboard.DeviceID) outboard.Device {
	for _, d := range p.Self().Devices {
		if d.ID == id {
			return d
		}
	}
	return outboard.Device{}
}

// waitForShare waits until a lease fits beside the leases that were granted before it, and returns
// an error when ctx ends before. A node that saw a lease expire a moment earlier than this one may
// have granted the device anew.
func waitForShare(ctx context.Context, v *view, d outboard.Device, lease outboard.Lease) error {
	for !hasShare(v, d, lease) {
		select {
		case <-ctx.Done():
			return errors.New("the device was leased before, and has no room for that lease")
		case <-v.changed():
		case <-time.After(sharePause):
		}
	}
	return nil
}

const sharePause = 20 * time.Millisecond

func hasShare(v *view, d outboard.Device, lease outboard.Lease) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.validRecords(d.ID, time.Now())
	if i := indexOf(before, lease); i >= 0 {
		before = before[:i]
	}
	request := Request{Memory: lease.Memory}
	if lease.Exclusive {
		request.Memory = 0
	}
	return fits(d, before, request)
}
