package tenant

import (
	"context"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/appdevice"
	"github.com/outboard-run/outboard/internal/accel/compute"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/function"
)

// deployed is a function of a version, with the resources that it may import.
type deployed struct {
	*function.Function
	tenant    *Tenant
	version   *version
	resources *appResources
	name      string
	module    string // its digest
	size      int    // of the module, in bytes
	spec      manifest.Function
	http      bool                       // it takes HTTP messages
	streams   bool                       // it may read its request and write its response in parts
	imports   map[string]manifest.Import // by name, "bucket:seats"
	outgoing  []egress.Host              // hosts to which it may send requests
	meter     meter
}

// minArena is the least size of an execution's arena.
const minArena outboard.Bytes = 64 << 10

// ArenaLimit implements app.Function. The window must also have room for the arenas that the
// function imports by name.
func (d *deployed) ArenaLimit() outboard.Bytes {
	window := d.Window()
	if window <= 0 {
		return 0
	}
	var named outboard.Bytes
	for _, i := range d.spec.Imports {
		if i.Kind == manifest.ImportArena {
			named += d.version.Spec.Arenas[i.Name]
		}
	}
	return max(window-named, minArena)
}

// run calls the function and counts the call.
func (d *deployed) run(ctx context.Context, q function.Request) (function.Response, error) {
	p, err := d.Call(ctx, q)
	d.meter.record(p.Cost.Ran, err)
	return p, err
}

// Import implements function.Resources: it opens a resource that the manifest lets the function
// import.
func (d *deployed) Import(ctx context.Context, name string) (function.Resource, error) {
	if host, ok := strings.CutPrefix(name, string(manifest.ImportOutgoing)+":"); ok {
		return d.outgoingHost(host)
	}
	i, ok := d.imports[name]
	if !ok {
		return nil, d.notAllowed(name)
	}
	spec, r := d.version.Spec, d.resources
	switch i.Kind {
	case manifest.ImportArena:
		return r.Arena(i.Name, spec.Arenas[i.Name], !i.Share)
	case manifest.ImportBucket:
		return r.Bucket(ctx, i.Name, spec.BucketTTL[i.Name])
	case manifest.ImportSecret:
		return r.Secret(i.Name)
	case manifest.ImportDevice:
		device, err := r.devices.Import(ctx, appdevice.Caller{
			Version: d.version.Number, Function: d.name, Name: i.Name, Spec: appdevice.Spec(spec.Devices[i.Name]), Share: i.Share,
		})
		if err != nil {
			return nil, err
		}
		return deviceResource{device}, nil
	case manifest.ImportModel:
		return d.tenant.models.Open(ctx, i.Name)
	case manifest.ImportFunction, manifest.ImportOutgoing:
	}
	app, other := i.Function(spec.Name)
	return d.callee(ctx, app, other)
}

var importable = []manifest.Kind{manifest.ImportArena, manifest.ImportBucket, manifest.ImportFunction, manifest.ImportSecret, manifest.ImportDevice, manifest.ImportModel, manifest.ImportOutgoing}

// notAllowed returns an error that names the line of the manifest that would allow an import.
func (d *deployed) notAllowed(name string) error {
	kind, object, ok := strings.Cut(name, ":")
	if !ok || object == "" || !slices.Contains(importable, manifest.Kind(kind)) {
		return outboard.Errorf(outboard.Invalid, "", "want KIND:NAME, as in bucket:seats, where KIND is one of arena, bucket, device, function, model, outgoing and secret")
	}
	return outboard.Errorf(outboard.Denied, "",
		"function %s may not: add \"- %s: %s\" to functions.%s.imports in the manifest of app %s",
		d.name, kind, object, d.name, d.version.Spec.Name)
}

// callee returns another function of the tenant.
func (d *deployed) callee(ctx context.Context, app, name string) (function.Resource, error) {
	v := d.version
	if app != v.Spec.Name {
		var err error
		if v, err = d.tenant.apps.AwaitCurrent(ctx, app); err != nil {
			return nil, err
		}
	}
	f := v.Functions[name]
	if f == nil {
		return nil, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", app, name)
	}
	return calleeResource{f}, nil
}

// calleeResource adapts another function to the resource that a function imports.
type calleeResource struct{ *deployed }

// Release implements function.Resource.
func (calleeResource) Release() {}

// Call implements function.Callee.
func (c calleeResource) Call(ctx context.Context, q function.Request) (function.Response, error) {
	q.Entry, q.Resources = c.spec.Entry, c.deployed
	return c.run(ctx, q)
}

// deviceResource adapts a device to the resource that a function imports.
type deviceResource struct{ *appdevice.Device }

// Do implements function.Device.
func (r deviceResource) Do(ctx context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (function.DeviceResult, error) {
	done, err := r.Device.Do(ctx, list, compute.Memory(memory))
	return function.DeviceResult{Read: done.Read, Printed: done.Printed, Moved: done.Moved}, err
}
