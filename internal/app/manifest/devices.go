package manifest

import (
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// maxDeviceMemory bounds the memory that a lease of a device may request.
const maxDeviceMemory outboard.Bytes = 1 << 50

// deviceReader reads the devices of an app.
type deviceReader struct{ *reader }

func (r *deviceReader) devices(v pathNode, a *App) {
	a.Devices = map[string]Device{}
	r.entries(v, "devices", "gpu: {type: gpu, memory: 512MiB}", func(name string, v pathNode) {
		a.Devices[name] = r.device(v)
	})
}

func (r *deviceReader) device(v pathNode) Device {
	var d Device
	var parts []string
	got := r.mapping(v, "a device", members{
		"type":    func(v pathNode) { parts = append(parts, r.deviceType(v)) },
		"select":  func(v pathNode) { parts = append(parts, r.selector(v)) },
		"memory":  r.deviceMemory(&d.Memory),
		"weight":  number(r.reader, &d.Weight, 1, outboard.MaxWeight),
		"timeout": r.duration(&d.Timeout, time.Millisecond, longest),
		"no-wait": r.boolean(&d.NoWait),
		"keep":    r.duration(&d.Keep, time.Millisecond, longest),
	})
	if timeout, ok := got["timeout"]; ok && d.NoWait {
		r.report(timeout.Node, "with no-wait nothing is waited for: leave one of them out")
	}
	slices.Sort(parts) // the order in the manifest means nothing
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	d.Selector = strings.Join(parts, ",")
	return d
}

// deviceTypes returns the types that a selector may request.
func deviceTypes() []outboard.DeviceType {
	return []outboard.DeviceType{outboard.GPU, outboard.CPU, outboard.Accelerator, outboard.Custom}
}

func (r *deviceReader) deviceType(v pathNode) string {
	if !r.scalar(v, "gpu, cpu, accelerator or custom") {
		return ""
	}
	if !slices.Contains(deviceTypes(), outboard.DeviceType(v.Value)) {
		r.report(v.Node, "%q is no type of devices: write gpu, cpu, accelerator or custom", v.Value)
		return ""
	}
	return "type=" + v.Value
}

func (r *deviceReader) selector(v pathNode) string {
	if !r.scalar(v, "a selector, such as vendor~nvidia,memory>=4GiB") {
		return ""
	}
	s, err := outboard.ParseSelector(v.Value)
	if err != nil {
		r.report(v.Node, "%v", err)
	}
	return s.String()
}

// deviceMemory reads a size that no function's memory bounds.
func (r *deviceReader) deviceMemory(to *outboard.Bytes) func(pathNode) {
	return func(v pathNode) {
		if !r.scalar(v, "a size, such as 512MiB") {
			return
		}
		n, err := outboard.ParseBytes(v.Value)
		switch {
		case err != nil:
			r.report(v.Node, "%v", err)
		case n == 0 || n > maxDeviceMemory:
			r.report(v.Node, "%s is %d bytes: want 1B to %v; leave it out for a whole device", v.Value, uint64(n), maxDeviceMemory)
		default:
			*to = n
		}
	}
}
