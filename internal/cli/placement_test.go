package cli

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

func TestTooSlow(t *testing.T) {
	o := runOptions{maxSlowdown: 0.1}
	for slowdown, want := range map[float64]bool{0.9: false, 1.09: false, 1.11: true, 3: true} {
		if got := o.tooSlow(&planLink{Slowdown: slowdown}); got != want {
			t.Errorf("%v times the local time: too slow %v, want %v", slowdown, got, want)
		}
	}
	if (&runOptions{}).tooSlow(&planLink{Slowdown: 100}) {
		t.Error("a device is too slow without --max-slowdown")
	}
	err := o.refusal([]planLink{{Device: "a/opencl/0", Unknown: "?"}, {Device: "b/opencl/0", Slowdown: 1.5, Network: planNetwork{RTT: 1e-3}}})
	if outboard.KindOf(err) != outboard.NoDevice || !strings.Contains(err.Error(), "b/opencl/0") || !strings.Contains(err.Error(), "50.0% slower") {
		t.Errorf("refusal %v", err)
	}
}
