// Package appdevice leases devices from the node for the functions of an app: one lease per call,
// or one that several calls share.
package appdevice

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/compute"
)

// Options configure an app's Leases.
type Options struct {
	App string
	// Socket is the node's socket for leasing devices, "" without a node, and Key authenticates
	// this process there.
	Socket, Key string
	// Life ends all leases. Go runs a function for which the process waits before it ends.
	Life context.Context //nolint:containedctx // leases outlive the calls that open them
	Go   func(func())
}

// Leases are the devices that an app has leased on this node. Several goroutines may call its
// methods.
type Leases struct {
	opts Options

	mu      sync.Mutex
	shared  map[leaseKey]*use
	closing map[*use]bool // being returned to the node
}

// New returns Leases without a device.
func New(o Options) *Leases { return &Leases{opts: o} }

// Spec is a device as a manifest describes it, with the fields of manifest.Device.
type Spec struct {
	Selector string
	Memory   outboard.Bytes
	Weight   int
	// Timeout is how long an import waits for a device, 0 for nearly the rest of the call's time;
	// with NoWait it does not wait for other leases to end.
	Timeout time.Duration
	NoWait  bool
	// Keep is how long an idle shared lease is kept for the next call.
	Keep time.Duration
}

// Caller is the function that imports a device, and the device by its name in the manifest.
type Caller struct {
	Version  int
	Function string
	Name     string // of the device
	Spec     Spec
	Share    bool
}

// Device is a device that a call uses.
type Device struct {
	use    *use
	holder *compute.Holder
	info   []byte
}

// Release ends the call's use of the device.
func (d *Device) Release() {
	if d.use.shared {
		d.holder.Close() // a lease that is not shared ends as a whole
	}
	d.use.release()
}

// Info returns a description of the device in JSON.
func (d *Device) Info() []byte { return d.info }

// Do executes a list of commands, as compute.Holder.Do does.
func (d *Device) Do(ctx context.Context, list []byte, memory compute.Memory) (compute.Result, error) {
	return d.holder.Do(ctx, list, memory)
}

// describe returns the description of a device for functions.
func describe(name string, l *lease) ([]byte, error) {
	d, facts := l.granted.Device, l.device.Facts()
	return json.Marshal(struct {
		Import      string              `json:"import"`
		Device      outboard.DeviceID   `json:"device"`
		Node        outboard.NodeID     `json:"node"`
		Type        outboard.DeviceType `json:"type"`
		Name        string              `json:"name"`
		Vendor      string              `json:"vendor"`
		Version     string              `json:"version"`
		Units       int                 `json:"units"`
		Memory      uint64              `json:"memory"`
		Buffer      uint64              `json:"buffer"`
		LocalMemory uint64              `json:"local_memory"`
		WorkGroup   int                 `json:"work_group"`
	}{
		name, d.ID, d.Node, d.Type, d.Name, d.Vendor, d.Version, d.Units,
		uint64(l.granted.Memory), uint64(facts.Buffer), uint64(facts.LocalMemory), facts.WorkGroup,
	})
}

// leaseKey identifies a device of the manifest: the same name may mean another device in another
// version.
type leaseKey struct {
	name string
	spec Spec
}

// use is a granted or requested lease, with the number of calls that use it.
type use struct {
	leases *Leases
	key    leaseKey
	shared bool
	cancel context.CancelFunc // cancels the request
	ready  chan struct{}      // closed when the node has answered
	lease  *lease             // set before ready is closed
	err    error              // why there is no lease
	closed chan struct{}      // closed when the lease was returned

	// Guarded by leases.mu.
	users   int
	waiting string        // reason of the node's last Waiting
	idle    chan struct{} // open while the lease is kept for the next call; closed by that call
}

// Import returns a device for a call, which must release it. A shared lease may be lost at that
// moment: then Import tries another one.
func (l *Leases) Import(ctx context.Context, c Caller) (*Device, error) {
	u, fresh := l.join(c)
	d, err := u.begin(ctx)
	if err != nil && !fresh && u.lost() && ctx.Err() == nil {
		u.release()
		u, _ = l.join(c)
		d, err = u.begin(ctx)
	}
	if err != nil {
		u.release()
		return nil, err
	}
	return d, nil
}

// lost reports whether the lease was granted and can't be used any more.
func (u *use) lost() bool {
	select {
	case <-u.ready:
		return u.err == nil && !u.usable()
	default:
		return false
	}
}

// begin waits for the lease and creates the call's holder on it.
func (u *use) begin(ctx context.Context) (*Device, error) {
	if err := u.await(ctx); err != nil {
		return nil, err
	}
	holder, err := u.lease.device.Holder()
	if err != nil {
		return nil, err
	}
	info, err := describe(u.key.name, u.lease)
	return &Device{use: u, holder: holder, info: info}, err
}

// join returns the shared lease, if there is a usable one, or a new one.
func (l *Leases) join(c Caller) (u *use, fresh bool) {
	key := leaseKey{c.Name, c.Spec}
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.shared[key]; c.Share && u != nil && u.usable() {
		u.users++
		if u.idle != nil {
			close(u.idle)
			u.idle = nil
		}
		return u, false
	}
	ctx, cancel := context.WithCancel(l.opts.Life)
	u = &use{leases: l, key: key, shared: c.Share, cancel: cancel, ready: make(chan struct{}), closed: make(chan struct{}), users: 1}
	if c.Share {
		if l.shared == nil {
			l.shared = map[leaseKey]*use{}
		}
		l.shared[key] = u
	}
	request := DeviceRequest{App: l.opts.App, Version: c.Version, Function: c.Function, Device: c.Name}
	l.opts.Go(func() { u.open(ctx, request) })
	return u, true
}

// usable reports whether another call may use the granted or requested lease.
func (u *use) usable() bool {
	select {
	case <-u.ready:
		return u.err == nil && !u.lease.device.Stuck()
	default:
		return true
	}
}

func (u *use) open(ctx context.Context, r DeviceRequest) {
	defer close(u.ready)
	if u.key.spec.NoWait {
		u.leases.awaitReturns(ctx)
	}
	u.lease, u.err = u.leases.open(ctx, r, u.shared, func(text string) {
		u.leases.mu.Lock()
		defer u.leases.mu.Unlock()
		u.waiting = text
	})
}

// awaitReturns waits until the leases that are currently being returned have been returned: a
// caller that does not wait for other leases to end would otherwise be refused because of the
// leases of its own app's last calls.
func (l *Leases) awaitReturns(ctx context.Context) {
	l.mu.Lock()
	closing := slices.Collect(maps.Keys(l.closing))
	l.mu.Unlock()
	for _, u := range closing {
		select {
		case <-u.closed:
		case <-ctx.Done():
			return
		}
	}
}

// await waits for the lease, for nine tenths of the call's remaining time, so that the function can
// still read why there is none.
func (u *use) await(ctx context.Context) error {
	begin, limit := time.Now(), u.key.spec.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline) / 10 * 9; limit == 0 || left < limit {
			limit = left
		}
	}
	wait := ctx
	if limit != 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	select {
	case <-u.ready:
		return u.err
	case <-wait.Done():
	}
	waited := time.Since(begin)
	if err := context.Cause(ctx); err != nil && (limit == 0 || waited < limit) {
		return err
	}
	return u.busyError(waited)
}

func (u *use) busyError(waited time.Duration) error {
	u.leases.mu.Lock()
	why := u.waiting
	u.leases.mu.Unlock()
	if why == "" {
		why = "the device's node has not answered"
	}
	return outboard.Errorf(outboard.Busy, "", "waited %v for a device: %s; free one, or raise the timeout of devices.%s or the function's deadline",
		waited.Round(time.Millisecond), why, u.key.name)
}

// release ends one call's use. The last one returns the lease, or keeps it for a while.
func (u *use) release() {
	l := u.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if u.users--; u.users > 0 {
		return
	}
	if u.shared && u.key.spec.Keep > 0 && u.granted() && l.opts.Life.Err() == nil {
		idle := make(chan struct{})
		u.idle = idle
		l.opts.Go(func() { u.closeWhenUnused(idle) })
		return
	}
	u.closeLocked()
}

// granted reports whether the lease was granted and other calls can use it.
func (u *use) granted() bool {
	select {
	case <-u.ready:
		return u.usable()
	default:
		return false
	}
}

// closeWhenUnused returns an idle lease that no call has used for as long as the manifest's Keep.
func (u *use) closeWhenUnused(idle chan struct{}) {
	timer := time.NewTimer(u.key.spec.Keep)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-timer.C:
	case <-u.lease.ended:
	case <-u.leases.opts.Life.Done():
	}
	u.leases.mu.Lock()
	defer u.leases.mu.Unlock()
	if u.idle == idle {
		u.closeLocked()
	}
}

// Close returns the idle leases. The others are returned when their calls end.
func (l *Leases) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.shared {
		if u.idle != nil {
			close(u.idle)
			u.closeLocked()
		}
	}
}

// closeLocked begins to return the lease. The caller holds leases.mu.
func (u *use) closeLocked() {
	l := u.leases
	u.idle = nil
	u.cancel()
	if l.shared[u.key] == u {
		delete(l.shared, u.key)
	}
	if l.closing == nil {
		l.closing = map[*use]bool{}
	}
	l.closing[u] = true
	l.opts.Go(u.returnLease)
}

func (u *use) returnLease() {
	defer close(u.closed)
	<-u.ready
	if u.lease != nil {
		u.lease.close()
	}
	u.leases.mu.Lock()
	defer u.leases.mu.Unlock()
	delete(u.leases.closing, u)
}
