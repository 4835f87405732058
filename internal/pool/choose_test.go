package pool

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// The request's own order comes first, then this node, then nearer nodes; among equally near
// ones free memory decides.
func TestChooseDevices(t *testing.T) {
	device := func(node string, free outboard.Bytes) DeviceState {
		return DeviceState{Device: outboard.Device{ID: outboard.DeviceID(node + "/opencl/0"), Node: outboard.NodeID(node)}, Free: free}
	}
	free := []DeviceState{device("unmeasured", 90), device("far", 80), device("near", 10), device("nearish", 20), device("me", 1)}
	p := preference{near: "me", distance: func(n outboard.NodeID) time.Duration {
		return map[outboard.NodeID]time.Duration{"far": 5 * time.Millisecond, "near": 70 * time.Microsecond, "nearish": 100 * time.Microsecond}[n]
	}}
	first := func() outboard.DeviceID { return chooseDevices(free, 1, p)[0].ID }
	for _, want := range []outboard.DeviceID{"me/opencl/0", "nearish/opencl/0", "near/opencl/0", "far/opencl/0", "unmeasured/opencl/0"} {
		if got := first(); got != want {
			t.Errorf("chosen %s, want %s", got, want)
		}
		for i := range free {
			if free[i].ID == want {
				free = append(free[:i:i], free[i+1:]...)
				break
			}
		}
	}
	free = []DeviceState{device("me", 1), device("far", 80)}
	p.devices = []outboard.DeviceID{"far/opencl/0"}
	if got := first(); got != "far/opencl/0" {
		t.Errorf("chosen %s, want the preferred one", got)
	}
}
