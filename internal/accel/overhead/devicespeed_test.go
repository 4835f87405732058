package overhead

import (
	"testing"
	"time"
)

// A device that takes half as long saves half of the device's time, and nothing of the time that
// the program and the network take. The local run is that on the recorded device.
func TestAFasterDevice(t *testing.T) {
	p := newProgram()
	for range 100 {
		p.launch(0, time.Millisecond)
		p.finish(10 * time.Microsecond)
	}
	r := p.exit(0)
	link := Link{RTT: 100 * time.Microsecond}
	same := predictOne(t, r, link, Options{Constants: zero()})
	link.DeviceTime = 0.5
	predicted, err := Predict(r.open, []Link{link, {RTT: link.RTT, DeviceTime: 2, DeviceSpread: 0.1}}, Options{Constants: zero(), Intervals: true})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "half as long", predicted[0].Wall, same-50*time.Millisecond, time.Millisecond)
	within(t, "twice as long", predicted[1].Wall, same+100*time.Millisecond, time.Millisecond)
	within(t, "the local run", predicted[1].Local, predicted[0].Local, 0)
	if half := predicted[1].High - predicted[1].Wall; half < 35*time.Millisecond || half > 45*time.Millisecond {
		t.Errorf("a spread of 10 %% of 200 ms widens the interval by %v to either side, want about 39 ms", half)
	}
	for _, bad := range []Link{{DeviceTime: -1}, {DeviceTime: 1e3}, {DeviceTime: 1, DeviceSpread: 2}} {
		if _, err := Predict(r.open, []Link{bad}, Options{Constants: zero()}); err == nil {
			t.Errorf("%+v is not refused", bad)
		}
	}
}
