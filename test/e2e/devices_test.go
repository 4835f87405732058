package e2e

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
)

// fleet is two nodes with the device and one without.
func fleet() []rig.Spec {
	return []rig.Spec{{Name: "harbour"}, {Name: "quay"}, {Name: "dinghy", Devices: "none"}}
}

// Two devices of two nodes in one program on one of the two: one device is reached over shared memory
// and one over the network. When the node of one dies, a program on a third node keeps the other.
func TestTwoDevices(t *testing.T) {
	beside(t)
	r := own(t, rig.Options{Nodes: withoutCache(fleet())})
	useTwoDevices(t, r, "quay")
	t.Run("one dies", func(t *testing.T) { oneOfTwoDies(t, r) })
}

// Both devices are reached over the network.
func TestTwoDevicesFromOtherNode(t *testing.T) {
	beside(t)
	useTwoDevices(t, own(t, rig.Options{Nodes: withoutCache(fleet())}), "dinghy")
}

// useTwoDevices runs testdata/two.c on a node.
func useTwoDevices(t *testing.T, r *rig.Rig, node string) {
	t.Helper()
	p := suite.Program{Args: []string{compiled(t, "two", "clt.c", "names.c", "opencl.c")}, Limit: patience}
	res := p.Run(t.Context(), through(r, node, "--count", "2", "--memory", "256MiB"), "")
	if res.Err != nil {
		t.Errorf("%v\n%s", res.Err, res.Stderr)
	}
	if res.Err != nil || strings.Contains(res.Stdout, "FAILED") || strings.Count(res.Stdout, ": ok\n") != twoDevicesCases {
		t.Errorf("the program said:\n%s", res.Stdout)
	}
}

// twoDevicesCases is how many cases testdata/two.c has.
const twoDevicesCases = 15

// When the node of one device dies, its calls end; the other goes on.
func oneOfTwoDies(t *testing.T, r *rig.Rig) {
	h := launch(t, through(r, "dinghy", "--count", "2", "--memory", "64MiB"), compiled(t, "half"))
	h.waitForHolding(t)
	if err := r.Node("quay").Kill(); err != nil {
		t.Fatal(err)
	}
	if code, seconds := h.waitForEnd(t); code != deviceNotAvailable {
		t.Errorf("the call gave %d after %.1f s, want CL_DEVICE_NOT_AVAILABLE", code, seconds)
	}
	if got := h.line(); got != "available 0" {
		t.Errorf("the dead device's CL_DEVICE_AVAILABLE: %q", got)
	}
	if got := h.line(); got != "other ok" {
		t.Errorf("the living device: %q\n%s", got, h.stderr)
	}
	// The program could do without: its own status counts.
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("outboard run: %v\n%s", err, h.stderr)
	}
	if !strings.Contains(h.stderr.String(), "session lost: quay/opencl/0: ") {
		t.Errorf("outboard run did not name the device: %q", h.stderr)
	}
}
