package pool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// DeviceState is a device with its grants.
type DeviceState struct {
	outboard.Device
	Grants []outboard.Grant `json:"grants,omitempty"`
	// Free is the memory that is not granted, 0 under an exclusive grant.
	Free outboard.Bytes `json:"free"`
}

// A record is a grant as the table holds it.
type record struct {
	outboard.Grant
	// Fence is the revision at which the grant was first written. It is 0 in that record
	// itself.
	Fence uint64 `json:"fence,omitempty"`
}

// A grantKey names a grant. Holders choose the IDs of their leases, so one may choose that of another
// holder's, or of a lease of another device.
type grantKey struct {
	device outboard.DeviceID
	holder outboard.NodeID
	lease  outboard.LeaseID
}

// A ticket is a queued request.
type ticket struct {
	ID       string            `json:"id"`
	Holder   outboard.NodeID   `json:"holder"`
	Boot     string            `json:"boot"`
	Selector outboard.Selector `json:"selector"`
	Count    int               `json:"count"`
	Memory   outboard.Bytes    `json:"memory,omitempty"`
	Program  string            `json:"program,omitempty"`
	Since    time.Time         `json:"since,omitzero"` // by the holder's clock

	order uint64 // the revision of the ticket's creation
	void  bool   // it can't be read or is beyond a limit: garbage
}

// observed is a value of the table, with the local time of its last change.
type observed[T any] struct {
	value T
	at    time.Time
}

// view is this node's in-memory copy of the pool's table.
type view struct {
	log      *slog.Logger
	identity *authority.Identity
	self     outboard.NodeID
	boot     string
	nodeTTL  time.Duration
	leaseTTL time.Duration
	silence  time.Duration // after that long without a change, the view's clock stands still

	mu         sync.Mutex
	next       chan struct{} // closed at the next change
	seq        uint64
	lastChange time.Time // when the table last changed
	resumed    time.Time // since when it has not been silent

	all      map[outboard.NodeID]*observed[outboard.Node]
	clocks   clockOffsets
	left     departures
	leftAt   time.Time // when a node left last
	admitted admissions
	removed  map[outboard.NodeID]bool // nodes that were removed, until one of that name has joined
	granted  map[outboard.DeviceID]deviceGrants
	grantsOf map[outboard.NodeID]int // how many granted has, by holder
	queue    map[string]ticket
	// ticketsOf is how many tickets queue has that are not void, by holder.
	ticketsOf map[outboard.NodeID]int
	links     map[outboard.NodeID][]client.Link
	renewed   map[grantKey]*observed[time.Time] // the value is the grant's Expires
	// voided and orphans are the void grants and the tickets without a holder that the last sweep
	// found, so that each wakes waiters only once.
	voided  map[grantKey]bool
	orphans map[string]bool
}

// deviceGrants are the values of a device's keys: each holder has one.
type deviceGrants struct {
	// revision is the last revision of all the device's keys, which a change must name.
	revision uint64
	holders  map[outboard.NodeID]holderGrants
}

// holderGrants is the value of one key. It has no records if this node has deleted the key and has
// not seen the deletion in the table yet.
type holderGrants struct {
	revision uint64
	records  []record
}

// records returns the grants of all holders, oldest first.
func (g deviceGrants) records() []record {
	var all []record
	for _, h := range g.holders {
		all = append(all, h.records...)
	}
	slices.SortFunc(all, func(a, b record) int { return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Lease, b.Lease)) })
	return all
}

func newView(opts Options) *view {
	now := time.Now()
	return &view{
		log: opts.Logger, identity: opts.Identity, self: opts.Identity.Name(), boot: opts.Self.Boot,
		nodeTTL: opts.NodeTTL, leaseTTL: opts.LeaseTTL, silence: 2 * opts.Heartbeat,
		next: make(chan struct{}), lastChange: now, resumed: now,
		all:       make(map[outboard.NodeID]*observed[outboard.Node]),
		clocks:    make(clockOffsets),
		left:      make(departures),
		admitted:  make(admissions),
		removed:   make(map[outboard.NodeID]bool),
		granted:   make(map[outboard.DeviceID]deviceGrants),
		grantsOf:  make(map[outboard.NodeID]int),
		queue:     make(map[string]ticket),
		ticketsOf: make(map[outboard.NodeID]int),
		links:     make(map[outboard.NodeID][]client.Link),
		renewed:   make(map[grantKey]*observed[time.Time]),
		voided:    make(map[grantKey]bool),
		orphans:   make(map[string]bool),
	}
}

// apply applies a change of the table.
func (v *view) apply(c state.Change) {
	// Record is called outside of the lock: it may write to the disk.
	if err := v.identity.Record(recordedKeys(c)); err != nil {
		v.log.Warn("the keys of the pool's nodes were not saved", "error", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if len(c.Entries) > 0 {
		if now.Sub(v.lastChange) > v.silence {
			v.resumed = now
		}
		v.lastChange = now
	}
	changed := false
	for _, e := range c.Entries {
		if v.applyEntry(e, now) {
			changed = true
		}
	}
	v.seq = max(v.seq, c.Seq)
	if changed {
		v.notify()
	}
}

// recordedKeys returns the fingerprints of the keys of nodes that a change records, "" for deleted
// ones.
func recordedKeys(c state.Change) map[outboard.NodeID]string {
	keys := make(map[outboard.NodeID]string)
	for _, e := range c.Entries {
		if name, ok := strings.CutPrefix(e.Key, identityPrefix); ok {
			if keys[outboard.NodeID(name)] = string(e.Value); e.Deleted {
				keys[outboard.NodeID(name)] = ""
			}
		}
	}
	return keys
}

// notify wakes the waiters for a change. The mutex is held.
func (v *view) notify() {
	close(v.next)
	v.next = make(chan struct{})
}

// applyEntry applies one entry and reports whether it changed the view.
func (v *view) applyEntry(e state.Entry, now time.Time) bool {
	var changed bool
	var err error
	if id, ok := strings.CutPrefix(e.Key, nodePrefix); ok {
		changed, err = v.applyNode(outboard.NodeID(id), e, now)
	} else if id, ok := strings.CutPrefix(e.Key, leasePrefix); ok {
		changed, err = v.applyGrants(id, e, now)
	} else if id, ok := strings.CutPrefix(e.Key, queuePrefix); ok {
		changed, err = v.applyTicket(id, e)
	} else if id, ok := strings.CutPrefix(e.Key, linkPrefix); ok {
		err = v.applyLinks(outboard.NodeID(id), e)
	} else if id, ok := strings.CutPrefix(e.Key, admissionPrefix); ok {
		changed, err = v.admitted.apply(outboard.NodeID(id), e)
	} else if fingerprint, ok := strings.CutPrefix(e.Key, revokedPrefix); ok && !e.Deleted {
		changed, err = true, v.applyRevocation(fingerprint, e)
	} else if e.Key == rootsKey && !e.Deleted {
		changed, err = true, trustRoots(v.identity, e)
	}
	if err != nil {
		v.log.Warn("ignored a record of the pool", "key", e.Key, "error", err)
	}
	return changed
}

func (v *view) applyNode(id outboard.NodeID, e state.Entry, now time.Time) (changed bool, err error) {
	had := v.all[id]
	if e.Deleted {
		if had != nil && !e.Expired {
			v.log.Info("a node left the pool", "node", id)
			v.left[id], v.leftAt = had.value.Boot, now
		}
		delete(v.all, id)
		delete(v.clocks, id)
		return had != nil, nil
	}
	var r nodeRecord
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return false, err
	}
	n := r.Node
	if n.ID != id {
		return false, errors.New("the record has another node's name")
	}
	if err := errors.Join(checkDevices(&n), checkTime(n.Started), checkTime(r.Clock)); err != nil {
		return false, err
	}
	v.clocks.observe(&r, now)
	if v.identity.IsRevoked(n.Fingerprint) {
		delete(v.all, id)
		return had != nil, nil
	}
	delete(v.left, id)
	delete(v.removed, id)
	v.all[id] = &observed[outboard.Node]{value: n, at: now}
	return had == nil || v.staleNode(had, now) || !equalJSON(had.value, n), nil
}

// checkDevices returns an error if a node lists devices of another node, or one device twice. A
// request that chose such a device could not lease it, and would be tried again and again.
func checkDevices(n *outboard.Node) error {
	if len(n.Devices) > maxDevices {
		return fmt.Errorf("the record has %d devices, more than %d", len(n.Devices), maxDevices)
	}
	seen := make(map[outboard.DeviceID]bool, len(n.Devices))
	for _, d := range n.Devices {
		if d.Node != n.ID || !strings.HasPrefix(string(d.ID), string(n.ID)+"/") {
			return fmt.Errorf("the record has the device %.100q of node %.100q", d.ID, d.Node)
		}
		if seen[d.ID] {
			return fmt.Errorf("the record has the device %.100q twice", d.ID)
		}
		seen[d.ID] = true
	}
	return nil
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// applyGrants applies the key of a device and a holder: DEVICE/HOLDER.
func (v *view) applyGrants(key string, e state.Entry, now time.Time) (changed bool, err error) {
	device, holder, ok := cutHolder(key)
	if !ok {
		return false, errors.New("the key names no device and holder")
	}
	have := v.granted[device].holders[holder].revision
	switch {
	case e.Deleted && e.Revision >= have:
		changed = v.setGrants(device, holder, nil, e.Revision, now)
		delete(v.granted[device].holders, holder)
		return changed, nil
	case e.Revision <= have:
		return false, nil // This node wrote it, or has read it before.
	}
	records, err := v.decodeRecords(e, device, holder)
	if err != nil {
		return false, err
	}
	if had := len(v.granted[device].holders[holder].records); v.grantsOf[holder]-had+len(records) > maxGrants {
		return v.setGrants(device, holder, nil, e.Revision, now), fmt.Errorf("node %s has more than %d leases", holder, maxGrants)
	}
	return v.setGrants(device, holder, records, e.Revision, now), nil
}

// cutHolder separates the holder from the device in a key.
func cutHolder(key string) (outboard.DeviceID, outboard.NodeID, bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return "", "", false
	}
	return outboard.DeviceID(key[:i]), outboard.NodeID(key[i+1:]), true
}

// setGrants replaces a holder's grants of a device, and reports whether they differ.
func (v *view) setGrants(id outboard.DeviceID, holder outboard.NodeID, records []record, revision uint64, now time.Time) (changed bool) {
	g := v.granted[id]
	if g.holders == nil {
		g.holders = make(map[outboard.NodeID]holderGrants)
	}
	old := g.holders[holder].records
	if v.grantsOf[holder] += len(records) - len(old); v.grantsOf[holder] == 0 {
		delete(v.grantsOf, holder)
	}
	g.holders[holder] = holderGrants{revision: revision, records: records}
	g.revision = max(g.revision, revision)
	v.granted[id] = g
	keep := make(map[outboard.LeaseID]bool, len(records))
	for _, r := range records {
		keep[r.Lease] = true
		key := grantKey{id, holder, r.Lease}
		if h := v.renewed[key]; h == nil || !h.value.Equal(r.Expires) {
			v.renewed[key] = &observed[time.Time]{value: r.Expires, at: now}
		}
	}
	for _, r := range old {
		if key := (grantKey{id, holder, r.Lease}); !keep[r.Lease] {
			delete(v.renewed, key)
			delete(v.voided, key)
		}
	}
	return !slices.EqualFunc(old, records, func(x, y record) bool { return x.Lease == y.Lease })
}

// decodeRecords reads a holder's grants of a device. A holder grants nothing to others, and can't
// date a grant back: a grant that was not in the table at the revision that this node has seen, or
// was of another size, came later. The mutex is held.
func (v *view) decodeRecords(e state.Entry, device outboard.DeviceID, holder outboard.NodeID) ([]record, error) {
	var records []record
	if err := json.Unmarshal(e.Value, &records); err != nil {
		return nil, err
	}
	for i, r := range records {
		if r.Holder != holder {
			return nil, fmt.Errorf("node %s grants a lease to node %s", holder, r.Holder)
		}
		if err := checkTime(r.Expires); err != nil {
			return nil, err
		}
		fence, known := fenceOf(v, device, &r)
		switch {
		case r.Fence == 0 || !known && r.Fence <= v.seq || r.Fence > e.Revision:
			records[i].Fence = e.Revision
		case known:
			records[i].Fence = max(fence, r.Fence)
		}
	}
	return records, nil
}

// fenceOf returns the fence of the grant that this node has seen and r renews. It reports false if
// there is none. The mutex is held.
func fenceOf(v *view, device outboard.DeviceID, r *record) (uint64, bool) {
	seen := v.granted[device].holders[r.Holder].records
	i := slices.IndexFunc(seen, func(s record) bool {
		return s.Lease == r.Lease && s.Memory == r.Memory && s.Exclusive == r.Exclusive
	})
	if i < 0 {
		return 0, false
	}
	return seen[i].Fence, true
}

func (v *view) applyTicket(id string, e state.Entry) (changed bool, err error) {
	holder := ticketHolder(id)
	if had, ok := v.queue[id]; ok && !had.void {
		if v.ticketsOf[holder]--; v.ticketsOf[holder] == 0 {
			delete(v.ticketsOf, holder)
		}
	}
	if e.Deleted {
		delete(v.queue, id)
		delete(v.orphans, id)
		return true, nil
	}
	t, err := decodeTicket(v, id, e)
	if err == nil {
		v.ticketsOf[holder]++
	}
	v.queue[id] = t
	return true, err
}

// age returns the time since an observation, by a clock that stands still while the table is
// silent. The mutex is held.
func (v *view) age(at, now time.Time) time.Duration {
	if at.Before(v.resumed) {
		at = v.resumed
	}
	if now.Sub(v.lastChange) > v.silence {
		now = v.lastChange
	}
	return now.Sub(at)
}

func (v *view) staleNode(h *observed[outboard.Node], now time.Time) bool {
	return h.value.ID != v.self && v.age(h.at, now) > v.nodeTTL
}

// departures are the boots of nodes that left or were removed.
type departures map[outboard.NodeID]string

func (d departures) include(id outboard.NodeID, boot string) bool { return d[id] == boot && boot != "" }

// sinceDeparture returns how long ago a node left last.
func sinceDeparture(v *view) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Since(v.leftAt)
}

// isPresent reports whether a node of that boot is in the pool. A node that has no record, and has not
// left, counts as present until its record could have arrived.
func (v *view) isPresent(id outboard.NodeID, boot string, now time.Time) bool {
	if id == v.self {
		return boot == v.boot
	}
	h := v.all[id]
	if h == nil {
		return !v.left.include(id, boot) && v.age(time.Time{}, now) <= v.nodeTTL
	}
	return h.value.Boot == boot && !v.staleNode(h, now)
}

// isVoid reports whether a grant is no longer valid: its holder has left, was removed or has
// started again, the device's node was removed, or it was not renewed for LeaseTTL. That rule is
// the same for the node of a device and the node of a program; a holder that is silent for a
// shorter time, as a suspended laptop, keeps its leases though it is not listed meanwhile.
func (v *view) isVoid(id outboard.DeviceID, r record, now time.Time) bool {
	// Without this a program would go on sending its data to the removed node.
	if owner, _, _ := strings.Cut(string(id), "/"); v.removed[outboard.NodeID(owner)] {
		return true
	}
	if r.Holder == v.self && r.Boot != v.boot || v.left.include(r.Holder, r.Boot) {
		return true
	}
	if h := v.all[r.Holder]; h != nil && h.value.Boot != r.Boot {
		return true
	}
	h := v.renewed[grantKey{id, r.Holder, r.Lease}]
	return h != nil && v.age(h.at, now) > v.leaseTTL
}

// validRecords returns the grants of a device that are not void.
func (v *view) validRecords(id outboard.DeviceID, now time.Time) []record {
	return slices.DeleteFunc(v.granted[id].records(), func(r record) bool { return v.isVoid(id, r, now) })
}

func (v *view) nodes() []outboard.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nodesLocked(time.Now())
}

func (v *view) nodesLocked(now time.Time) []outboard.Node {
	var nodes []outboard.Node
	for _, h := range v.all {
		if !v.staleNode(h, now) {
			n := h.value
			n.Devices = slices.Clone(n.Devices)
			n.AdmittedBy = slices.Clone(v.admitted[n.ID]) // whatever its own record says
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b outboard.Node) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}

func (v *view) node(id outboard.NodeID) (outboard.Node, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.all[id]
	if h == nil || v.staleNode(h, time.Now()) {
		return outboard.Node{}, false
	}
	return h.value, true
}

// lastRecord returns the last record of a node, which may be silent for the moment.
func lastRecord(v *view, id outboard.NodeID) (outboard.Node, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.all[id]
	if h == nil {
		return outboard.Node{}, false
	}
	return h.value, true
}

// hasDeparted reports whether a node has left the pool, or was removed, and has not come back.
func hasDeparted(v *view, id outboard.NodeID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, left := v.left[id]
	return left || v.removed[id]
}

func (v *view) devices() []DeviceState {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.devicesLocked(time.Now())
}

func (v *view) devicesLocked(now time.Time) []DeviceState {
	var devices []DeviceState
	for _, n := range v.nodesLocked(now) {
		for _, d := range n.Devices {
			s := DeviceState{Device: d, Grants: grantsOf(v.validRecords(d.ID, now))}
			s.Free = d.FreeMemory(s.Grants, time.Time{})
			devices = append(devices, s)
		}
	}
	slices.SortFunc(devices, func(a, b DeviceState) int { return cmp.Compare(a.ID, b.ID) })
	return devices
}

func grantsOf(records []record) []outboard.Grant {
	var grants []outboard.Grant
	for _, r := range records {
		grants = append(grants, r.Grant)
	}
	return grants
}

func (v *view) leases() []outboard.Lease {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var leases []outboard.Lease
	for _, id := range slices.Sorted(maps.Keys(v.granted)) {
		for _, r := range v.validRecords(id, now) {
			leases = append(leases, r.lease(id))
		}
	}
	return leases
}

func (r record) lease(id outboard.DeviceID) outboard.Lease {
	return outboard.Lease{Grant: r.Grant, Device: id, Fence: r.Fence}
}

// find returns a holder's lease that is not void.
func (v *view) find(device outboard.DeviceID, holder outboard.NodeID, id outboard.LeaseID) (outboard.Lease, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.validRecords(device, time.Now()) {
		if r.Holder == holder && r.Lease == id {
			return r.lease(device), true
		}
	}
	return outboard.Lease{}, false
}

func (v *view) changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.next
}

// waiting returns the tickets of present nodes, in order.
func (v *view) waiting() []ticket {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var tickets []ticket
	for _, t := range v.queue {
		if !t.void && v.isPresent(t.Holder, t.Boot, now) {
			tickets = append(tickets, t)
		}
	}
	slices.SortFunc(tickets, func(a, b ticket) int { return cmp.Compare(a.order, b.order) })
	return tickets
}

// reached reports whether the view includes a revision.
func (v *view) reached(revision uint64) (bool, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seq >= revision, v.next
}

// waitForRevision waits until the view includes a revision. Changes without effect do not wake
// waiters, so it also polls.
func (v *view) waitForRevision(ctx context.Context, revision uint64) error {
	for {
		ok, next := v.reached(revision)
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return outboard.Errorf(outboard.Unreachable, "the pool's state", "this node lags behind: %w", ctx.Err())
		case <-next:
		case <-time.After(5 * time.Millisecond):
		}
	}
}
