package tenant

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/compute"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
)

// A deviceResource is a device, as an import.
type deviceResource struct {
	use    *deviceUse
	holder *compute.Holder
	info   []byte
}

// Release implements function.Resource.
func (r *deviceResource) Release() {
	if r.use.shared {
		r.holder.Close() // otherwise all of the session ends
	}
	r.use.leave()
}

// Info implements function.Device.
func (r *deviceResource) Info() []byte { return r.info }

// Do implements function.Device.
func (r *deviceResource) Do(ctx context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (function.DeviceResult, error) {
	done, err := r.holder.Do(ctx, list, memory)
	return function.DeviceResult{Read: done.Read, Printed: done.Printed, Moved: done.Moved}, err
}

// describeDevice is what a function is told of a device.
func describeDevice(name string, l *lease) ([]byte, error) {
	d, facts := l.about.Device, l.device.Facts()
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
		uint64(l.about.Memory), uint64(facts.Buffer), uint64(facts.LocalMemory), facts.WorkGroup,
	})
}

// devices are the leases of an app on this node. The zero value has none.
type devices struct {
	mu     sync.Mutex
	shared map[deviceKey]*deviceUse
	going  map[*deviceUse]bool // that are being given back
}

// A deviceKey is a device of the manifest; versions may mean different things by a name.
type deviceKey struct {
	name string
	spec manifest.Device
}

// A deviceUse is a lease, which may still be waited for, and how many use it.
type deviceUse struct {
	home   *home
	key    deviceKey
	shared bool
	cancel context.CancelFunc // of the wait
	ready  chan struct{}
	lease  *lease        // once it is ready
	err    error         // why there is none
	gone   chan struct{} // closed when the lease was given back

	// Under home.devices.mu.
	users   int
	waiting string
	kept    chan struct{} // while the lease is kept for the next one; closed when that comes
}

// device imports a device for a function. A lease that was there may be lost just now: then
// another one is tried.
func (h *home) device(ctx context.Context, d *deployed, i manifest.Import) (function.Resource, error) {
	u, fresh := h.join(d, i)
	r, err := u.begin(ctx)
	if err != nil && !fresh && u.died() && ctx.Err() == nil {
		u.leave()
		u, _ = h.join(d, i)
		r, err = u.begin(ctx)
	}
	if err != nil {
		u.leave()
		return nil, err
	}
	return r, nil
}

// died says whether there was a lease that is of no use any more.
func (u *deviceUse) died() bool {
	select {
	case <-u.ready:
		return u.err == nil && !u.usable()
	default:
		return false
	}
}

// begin waits for the lease and begins to use it.
func (u *deviceUse) begin(ctx context.Context) (*deviceResource, error) {
	if err := u.await(ctx); err != nil {
		return nil, err
	}
	holder, err := u.lease.device.Holder()
	if err != nil {
		return nil, err
	}
	info, err := describeDevice(u.key.name, u.lease)
	return &deviceResource{use: u, holder: holder, info: info}, err
}

// join uses the lease that is shared, if there is one in good order, or a new one.
func (h *home) join(d *deployed, i manifest.Import) (u *deviceUse, fresh bool) {
	key := deviceKey{i.Name, d.version.spec.Devices[i.Name]}
	h.devices.mu.Lock()
	defer h.devices.mu.Unlock()
	if u := h.devices.shared[key]; i.Share && u != nil && u.usable() {
		u.users++
		if u.kept != nil {
			close(u.kept)
			u.kept = nil
		}
		return u, false
	}
	ctx, cancel := context.WithCancel(h.tenant.life)
	u = &deviceUse{home: h, key: key, shared: i.Share, cancel: cancel, ready: make(chan struct{}), gone: make(chan struct{}), users: 1}
	if i.Share {
		if h.devices.shared == nil {
			h.devices.shared = map[deviceKey]*deviceUse{}
		}
		h.devices.shared[key] = u
	}
	request := DeviceRequest{App: d.version.spec.Name, Version: d.version.number, Function: d.name, Device: i.Name}
	h.tenant.running.Go(func() { u.open(ctx, request) })
	return u, true
}

// usable says whether somebody new may use the lease.
func (u *deviceUse) usable() bool {
	select {
	case <-u.ready:
		return u.err == nil && !u.lease.device.Stuck()
	default:
		return true
	}
}

func (u *deviceUse) open(ctx context.Context, r DeviceRequest) {
	defer close(u.ready)
	if u.key.spec.NoWait {
		u.home.devices.settle(ctx)
	}
	u.lease, u.err = u.home.tenant.lease(ctx, r, u.shared, func(text string) {
		u.home.devices.mu.Lock()
		defer u.home.devices.mu.Unlock()
		u.waiting = text
	})
}

// settle waits until the leases that are being given back are: who does not want to wait
// for others would find those of the app's own calls before.
func (d *devices) settle(ctx context.Context) {
	d.mu.Lock()
	going := slices.Collect(maps.Keys(d.going))
	d.mu.Unlock()
	for _, u := range going {
		select {
		case <-u.gone:
		case <-ctx.Done():
			return
		}
	}
}

// await waits for the lease, a little less than the call may take: so the function still
// hears why there is none.
func (u *deviceUse) await(ctx context.Context) error {
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
	return u.noTurn(waited)
}

func (u *deviceUse) noTurn(waited time.Duration) error {
	u.home.devices.mu.Lock()
	why := u.waiting
	u.home.devices.mu.Unlock()
	if why == "" {
		why = "the device's node has not answered"
	}
	return outboard.Errorf(outboard.Busy, "", "waited %v for a device: %s; free one, or raise the timeout of devices.%s or the function's deadline",
		waited.Round(time.Millisecond), why, u.key.name)
}

// leave ends one use. The last one gives the lease back, or has it kept for a while.
func (u *deviceUse) leave() {
	d := &u.home.devices
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.users--; u.users > 0 {
		return
	}
	if u.shared && u.key.spec.Keep > 0 && u.good() && u.home.tenant.life.Err() == nil {
		kept := make(chan struct{})
		u.kept = kept
		u.home.tenant.running.Go(func() { u.keep(kept) })
		return
	}
	u.end()
}

// good says whether there is a lease that others can use.
func (u *deviceUse) good() bool {
	select {
	case <-u.ready:
		return u.usable()
	default:
		return false
	}
}

// keep waits for somebody new, for as long as the manifest says.
func (u *deviceUse) keep(kept chan struct{}) {
	timer := time.NewTimer(u.key.spec.Keep)
	defer timer.Stop()
	select {
	case <-kept:
		return
	case <-timer.C:
	case <-u.lease.ended:
	case <-u.home.tenant.life.Done():
	}
	d := &u.home.devices
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.kept == kept {
		u.end()
	}
}

// drop ends the leases that are kept.
func (d *devices) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range d.shared {
		if u.kept != nil {
			close(u.kept)
			u.end()
		}
	}
}

// end gives the lease back. The caller has the lock.
func (u *deviceUse) end() {
	d := &u.home.devices
	u.kept = nil
	u.cancel()
	if d.shared[u.key] == u {
		delete(d.shared, u.key)
	}
	if d.going == nil {
		d.going = map[*deviceUse]bool{}
	}
	d.going[u] = true
	u.home.tenant.running.Go(u.giveBack)
}

func (u *deviceUse) giveBack() {
	defer close(u.gone)
	<-u.ready
	if u.lease != nil {
		u.lease.close()
	}
	d := &u.home.devices
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.going, u)
}

// noModels is the answer to who imports a model.
func noModels(name string) error {
	return outboard.Errorf(outboard.NotFound, "", "this pool has no models yet: %s can't be imported", name)
}
