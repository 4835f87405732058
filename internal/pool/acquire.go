package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// sampleSize is the number of devices among which a placement chooses when more have room.
const sampleSize = 64

// A Request describes the devices to lease.
type Request struct {
	Selector outboard.Selector
	// Count is the number of devices, 1 by default. The request gets all of them or none.
	Count int
	// Memory is the memory that the lease may allocate on each device, which other leases may
	// share. 0 requests whole devices.
	Memory outboard.Bytes
	// Weight is the share of a shared device's time, 1 by default.
	Weight int
	// Program names the program that will run, for display.
	Program string
	// Prefer orders the devices that have room: the devices that it names come first, in its order.
	Prefer []outboard.DeviceID
	// Exclude names devices that the request must not get.
	Exclude []outboard.DeviceID
	// NoWait fails at once when all devices that fit are busy.
	NoWait bool
	// Timeout, if not 0, bounds how long the request is in the queue: a slow answer of the pool's
	// state does not use it up.
	Timeout time.Duration
	// Progress, if not nil, is called whenever something has changed while the request waits. It
	// must not block.
	Progress func(Waiting)
}

// Waiting is the progress of a queued request.
type Waiting struct {
	// Position is 1 when the request is next.
	Position int
	// Busy are the devices that would match and are leased, with their grants.
	Busy []DeviceState
	// Fit is the number of devices that would match, Free how many of them have room now.
	Fit, Free int
}

// String describes, for people, for what a request waits.
func (w Waiting) String() string {
	text := fmt.Sprintf("place %d in the queue", w.Position)
	if len(w.Busy) == 0 {
		return text
	}
	return text + ", and " + w.describeDevices()
}

// describeDevices describes which devices that match are leased, at least one.
func (w Waiting) describeDevices() string {
	held := describeHolders(w.Busy)
	switch w.Free {
	case 0:
		return "all devices that fit are leased: " + held
	case 1:
		return fmt.Sprintf("1 of %d devices that fit is free, leased are %s", w.Fit, held)
	}
	return fmt.Sprintf("%d of %d devices that fit are free, leased are %s", w.Free, w.Fit, held)
}

func (r *Request) setDefaults() {
	r.Count = max(r.Count, 1)
	r.Weight = max(r.Weight, 1)
}

// Acquire leases devices for a request: the preferred devices first, then devices of this node, of
// nodes that are near by the measured network, and with the most free memory. When all devices that
// fit are busy, it waits its turn until ctx ends or the request's time-out has passed.
//
// Errors: NoDevice when the pool has no devices that fit, and no node has just left it that may be
// starting again; Busy with NoWait; Unreachable when the table does not answer; Denied on a node that
// was removed. The caller renews the leases (Renew, Hold) and gives them back (Release).
func (l *leaser) Acquire(ctx context.Context, req Request) ([]outboard.Lease, error) {
	if err := authority.CheckMembership(l.view.identity); err != nil {
		return nil, err
	}
	req.setDefaults()
	start := time.Now()
	member, end := l.whileMember(ctx)
	defer end()
	leases, err := l.acquire(member, req)
	switch {
	case err == nil && authority.IsRemoved(l.view.identity):
		// Its own server may have taken the record meanwhile. Such a lease is void.
		leases, err = nil, authority.ErrRemoved
	case err != nil && ctx.Err() == nil && member.Err() != nil:
		err = context.Cause(member)
	}
	l.metrics.acquired(err, time.Since(start))
	return leases, err
}

// whileMember returns a context that ends when this node finds that it was removed from the pool, with
// the error as its cause: such a node sees no change any more, and what it writes is not answered.
func (l *leaser) whileMember(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		check := time.NewTicker(l.opts.Heartbeat)
		defer check.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-check.C:
				if err := authority.CheckMembership(l.view.identity); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (l *leaser) acquire(ctx context.Context, req Request) ([]outboard.Lease, error) {
	for {
		changed := l.view.changed()
		leases, err := l.tryAcquire(ctx, req, l.satisfiable())
		switch {
		case errors.Is(err, errFull) && req.NoWait:
			return nil, l.busyError(req)
		case errors.Is(err, errFull):
			return l.waitInQueue(ctx, req)
		case req.NoWait || !l.awaitReturn(ctx, err, changed):
			return leases, err
		}
	}
}

// awaitReturn waits for a change of the view, and reports true, if err says that there is no device
// and a node has left the pool less than NodeTTL ago: it may be starting again. A node that was
// killed has its record for that time.
func (l *leaser) awaitReturn(ctx context.Context, err error, changed <-chan struct{}) bool {
	left := l.opts.NodeTTL - sinceDeparture(l.view)
	if outboard.KindOf(err) != outboard.NoDevice || left <= 0 {
		return false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-timer.C:
	}
	return true
}

// fitting returns the devices that a request could have if nothing were granted.
func (l *leaser) fitting(req Request) ([]DeviceState, error) {
	all := l.view.devices()
	devices := make([]outboard.Device, len(all))
	for i, d := range all {
		devices[i] = d.Device
	}
	matching, err := req.Selector.Select(devices)
	if err != nil {
		return nil, err
	}
	fit := slices.DeleteFunc(all, func(d DeviceState) bool { return !req.Selector.Match(d.Device) || d.Memory < req.Memory })
	if len(fit) > 0 {
		fit = slices.DeleteFunc(fit, func(d DeviceState) bool { return slices.Contains(req.Exclude, d.ID) })
		if len(fit) == 0 {
			return nil, outboard.Errorf(outboard.NoDevice, req.op(), "the request excludes all devices that match")
		}
	}
	switch op := req.op(); {
	case len(fit) == 0:
		largest := slices.MaxFunc(matching, func(a, b outboard.Device) int { return cmp.Compare(a.Memory, b.Memory) })
		return nil, outboard.Errorf(outboard.NoDevice, op, "no device that matches has %s; the largest, %s, has %s",
			req.Memory, largest.ID, largest.Memory)
	case len(fit) < req.Count:
		return nil, outboard.Errorf(outboard.NoDevice, op, "the pool has only %d that fit", len(fit))
	}
	return fit, nil
}

// tryAcquire acquires devices now, without overtaking earlier tickets for the same devices. It
// returns errFull when too few devices are free.
func (l *leaser) tryAcquire(ctx context.Context, req Request, earlier []ticket) ([]outboard.Lease, error) {
	for {
		fit, err := l.fitting(req)
		if err != nil {
			return nil, err
		}
		free := slices.DeleteFunc(fit, func(d DeviceState) bool {
			return !fitsGrants(d, req) || slices.ContainsFunc(earlier, func(t ticket) bool { return t.matches(d.Device) })
		})
		if len(free) < req.Count {
			return nil, errFull
		}
		chosen := chooseDevices(free, req.Count, l.preference(req))
		leases, err := l.grantAll(ctx, chosen, req)
		if !errors.Is(err, errFull) {
			return leases, err
		}
		// Another node won the compare-and-swap, and the view includes its grant now.
	}
}

// grantAll grants all devices or none. Every node acquires them in the order of their ids and
// waits for none while it holds another, so there is no circular wait.
func (l *leaser) grantAll(ctx context.Context, devices []outboard.Device, req Request) ([]outboard.Lease, error) {
	var leases []outboard.Lease
	for _, d := range devices {
		lease, err := l.grantDevice(ctx, d, req)
		if err != nil {
			return nil, errors.Join(err, l.releaseAll(leases))
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// preference orders devices for a request.
type preference struct {
	near     outboard.NodeID // this node
	devices  []outboard.DeviceID
	distance func(outboard.NodeID) time.Duration // measured round-trip time, 0: unknown
}

func (l *leaser) preference(req Request) preference {
	p := preference{near: l.view.self, devices: req.Prefer, distance: l.opts.Distance}
	if p.distance == nil {
		p.distance = func(outboard.NodeID) time.Duration { return 0 }
	}
	return p
}

// rank returns a device's place among the preferred devices, their number for other devices.
func (p *preference) rank(d DeviceState) int {
	if i := slices.Index(p.devices, d.ID); i >= 0 {
		return i
	}
	return len(p.devices)
}

// wanted reports whether a device is always considered.
func (p *preference) wanted(d DeviceState) bool {
	return d.Node == p.near || p.rank(d) < len(p.devices)
}

// distanceClass groups nodes whose round-trip times differ by less than about a factor of two:
// within a class free memory decides. Unmeasured nodes come last.
func (p *preference) distanceClass(d DeviceState) int {
	rtt := p.distance(d.Node)
	if rtt <= 0 {
		return 64
	}
	return bits.Len64(uint64(rtt))
}

// chooseDevices chooses count of the devices, which all have room, and returns them in the order of
// their ids: the preferred devices first, then devices of this node, of nearer nodes, and with the
// most free memory. Of more than sampleSize devices it considers a random sample.
func chooseDevices(free []DeviceState, count int, p preference) []outboard.Device {
	free = slices.Clone(free)
	if size := max(sampleSize, count); len(free) > size {
		own, others := partition(free, p.wanted)
		rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		free = slices.Concat(own, others)[:max(size, min(len(own), size))]
	}
	slices.SortStableFunc(free, func(a, b DeviceState) int {
		return cmp.Or(
			cmp.Compare(p.rank(a), p.rank(b)),
			-cmp.Compare(boolInt(a.Node == p.near), boolInt(b.Node == p.near)),
			cmp.Compare(p.distanceClass(a), p.distanceClass(b)),
			-cmp.Compare(a.Free, b.Free),
			cmp.Compare(a.ID, b.ID),
		)
	})
	chosen := make([]outboard.Device, count)
	for i := range chosen {
		chosen[i] = free[i].Device
	}
	slices.SortFunc(chosen, func(a, b outboard.Device) int { return cmp.Compare(a.ID, b.ID) })
	return chosen
}

func partition(all []DeviceState, first func(DeviceState) bool) (yes, no []DeviceState) {
	for _, d := range all {
		if first(d) {
			yes = append(yes, d)
		} else {
			no = append(no, d)
		}
	}
	return yes, no
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fits reports whether a device with these grants has room for a request.
func fits(d outboard.Device, records []record, req Request) bool {
	return hasRoom(d, grantsOf(records), req)
}

func fitsGrants(d DeviceState, req Request) bool { return hasRoom(d.Device, d.Grants, req) }

func hasRoom(d outboard.Device, grants []outboard.Grant, req Request) bool {
	if req.Memory == 0 {
		return len(grants) == 0
	}
	exclusive := slices.ContainsFunc(grants, func(g outboard.Grant) bool { return g.Exclusive })
	// Only valid grants are passed, so their expiry plays no part any more.
	return !exclusive && d.FreeMemory(grants, time.Time{}) >= req.Memory
}

// matches reports whether a ticket could use a device.
func (t ticket) matches(d outboard.Device) bool {
	return t.Selector.Match(d) && d.Memory >= t.Memory
}

// busyError names the holders of the devices that match.
func (l *leaser) busyError(req Request) error {
	if _, err := l.fitting(req); err != nil {
		return err
	}
	w := l.progress(req, 0)
	if len(w.Busy) == 0 {
		return outboard.Errorf(outboard.Busy, req.op(), "others wait for the devices that fit")
	}
	return outboard.Errorf(outboard.Busy, req.op(), "%s", w.describeDevices())
}

// maxHolders bounds the grants that a text for people names.
const maxHolders = 8

// describeHolders names the grants of devices, "" if there are none.
func describeHolders(devices []DeviceState) string {
	var held []string
	for _, d := range devices {
		for _, g := range d.Grants {
			held = append(held, fmt.Sprintf("%s by %s", d.ID, describeHolder(g)))
		}
	}
	slices.Sort(held)
	if held = slices.Compact(held); len(held) > maxHolders {
		held = append(held[:maxHolders], fmt.Sprintf("and %d more", len(held)-maxHolders))
	}
	return strings.Join(held, ", ")
}

// op describes the request for errors.
func (r Request) op() string {
	text := "lease a device"
	if r.Count > 1 {
		text = fmt.Sprintf("lease %d devices", r.Count)
	}
	if s := r.Selector.String(); s != "" {
		text += fmt.Sprintf(" of %q", s)
	}
	return text
}

func describeHolder(g outboard.Grant) string {
	if g.Program == "" {
		return "node " + string(g.Holder)
	}
	return fmt.Sprintf("node %s (%s)", g.Holder, g.Program)
}
