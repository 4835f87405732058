package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/calibrate"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// maxSpeeds bounds the devices whose speed a calibration measures.
const maxSpeeds = 16

// speeds returns the speeds of the devices that the calibration has measured anyway, and of further
// devices of the pool, one of each driver and node.
func (c *calibrationPaths) speeds(ctx context.Context, devices []client.Device) []deviceSpeed {
	all := []deviceSpeed{{Speed: c.direct.Speed()}}
	if c.own != "" {
		all = append(all, deviceSpeed{c.own, c.ring.Speed()})
	}
	if c.network != nil {
		all = append(all, deviceSpeed{c.elsewhere, c.network.Speed()})
	}
	for i := range devices {
		id := string(devices[i].ID)
		if len(all) == maxSpeeds || slices.ContainsFunc(all, func(s deviceSpeed) bool { return s.Device == id }) {
			continue
		}
		var s calibrate.Sample
		if _, err := c.env.runCalibration(ctx, &s, "calibrate", id); err != nil {
			fmt.Fprintf(c.env.Stderr, "outboard: the speed of %s is not known: %s\n", id, clean(err.Error()))
			continue
		}
		all = append(all, deviceSpeed{id, s.Speed})
	}
	return all
}

// speedRows returns the speeds as rows of the table of constants.
func speedRows(speeds []deviceSpeed) (rows [][]string) {
	for _, s := range speeds {
		where := s.Device
		if where == "" {
			where = "this machine's own driver"
		}
		rows = append(rows, []string{"speed of " + where, fmt.Sprintf("%.3g Gflop/s, %s/s", s.Arithmetic/1e9, outboard.Bytes(s.Memory).String())})
	}
	return rows
}

// scale sets, on the link to a device, the device's time relative to the trace's device, and
// reports whether both were measured.
func (c *calibration) scale(h *trace.Header, device string, l *overhead.Link) bool {
	recorded := &h.Devices[0]
	if recorded.ID == device {
		return true
	}
	from, ok := c.speedOf(recorded.ID, recorded.Name)
	if !ok {
		return false
	}
	i := slices.IndexFunc(c.Speeds, func(s deviceSpeed) bool { return s.Device == device })
	if i < 0 {
		return false
	}
	if l.SharedMemory && recorded.ID == "" && c.Speeds[i].Name == recorded.Name {
		return true // the device that the program used without Outboard
	}
	multiple, spread, ok := calibrate.Ratio(from, c.Speeds[i].Speed)
	if ok {
		l.DeviceTime, l.DeviceSpread = min(max(multiple, 0.01), 100), spread
	}
	return ok
}

// speedOf returns the speed of a trace's device: by its name in the pool or, in a trace of a local
// run, by its driver's name.
func (c *calibration) speedOf(device, name string) (calibrate.Speed, bool) {
	i := slices.IndexFunc(c.Speeds, func(s deviceSpeed) bool { return s.Device == device && s.Name == name })
	if i < 0 {
		return calibrate.Speed{}, false
	}
	return c.Speeds[i].Speed, true
}
