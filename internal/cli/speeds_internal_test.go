package cli

import (
	"testing"

	"github.com/outboard-run/outboard/internal/accel/calibrate"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// A plan for another device than the recorded one uses the ratio of their measured speeds.
func TestDeviceSpeedsScalePlans(t *testing.T) {
	speed := func(name string, rate float64) calibrate.Speed {
		return calibrate.Speed{Name: name, Arithmetic: rate, Memory: rate}
	}
	c := calibration{Speeds: []deviceSpeed{
		{"", speed("small", 1e9)}, {"dinghy/opencl/0", speed("small", 1.2e9)}, {"harbour/opencl/0", speed("large", 4e9)},
	}}
	for name, tt := range map[string]struct {
		recorded trace.Device
		device   string
		link     overhead.Link
		want     float64
		known    bool
	}{
		"another one, of a local run":  {trace.Device{Name: "small"}, "harbour/opencl/0", overhead.Link{}, 0.25, true},
		"of a remote run":              {trace.Device{ID: "harbour/opencl/0", Name: "large"}, "dinghy/opencl/0", overhead.Link{SharedMemory: true}, 4 / 1.2, true},
		"the recorded one":             {trace.Device{ID: "harbour/opencl/0", Name: "large"}, "harbour/opencl/0", overhead.Link{}, 0, true},
		"its own, of a local run":      {trace.Device{Name: "small"}, "dinghy/opencl/0", overhead.Link{SharedMemory: true}, 0, true},
		"recorded on an unknown one":   {trace.Device{Name: "other"}, "harbour/opencl/0", overhead.Link{}, 0, false},
		"to one that was not measured": {trace.Device{Name: "small"}, "far/opencl/0", overhead.Link{}, 0, false},
	} {
		h := &trace.Header{Devices: []trace.Device{tt.recorded}}
		known := c.scale(h, tt.device, &tt.link)
		if known != tt.known || tt.link.DeviceTime < 0.999*tt.want || tt.link.DeviceTime > 1.001*tt.want {
			t.Errorf("%s: %g times as long, known %v; want %g, %v", name, tt.link.DeviceTime, known, tt.want, tt.known)
		}
	}
}
