package overhead

import (
	"testing"
	"time"
)

func TestProgramsTogetherShareALink(t *testing.T) {
	writer := func(device string) *recording {
		p := newProgram()
		p.header.Devices[0].Name = device
		for range 100 {
			p.write(1_000_000, 0, 0)
		}
		p.finish(0)
		return p.exit(0)
	}
	a, b := writer("one"), writer("two")
	link := Link{Up: 800e6} // a second for each
	o := Options{Constants: zero()}
	got, err := PredictTogether([]Open{a.open, b.open}, link, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got {
		within(t, []string{"the first", "the second"}[i], p.Wall, 2*time.Second, 100*time.Millisecond)
	}
	within(t, "one alone", predictOne(t, a, link, o), time.Second, 10*time.Millisecond)
}

func TestProgramsTogetherShareADevice(t *testing.T) {
	launcher := func(device string) *recording {
		p := newProgram()
		p.header.Devices[0].Name = device
		for range 100 {
			p.launch(0, 10*time.Millisecond)
			p.finish(0)
		}
		return p.exit(0)
	}
	o := Options{Constants: zero()}
	for name, c := range map[string]struct {
		other string
		want  time.Duration
	}{"the same device": {"one", 2 * time.Second}, "another device": {"two", time.Second}} {
		got, err := PredictTogether([]Open{launcher("one").open, launcher(c.other).open}, Link{}, o)
		if err != nil {
			t.Fatal(err)
		}
		within(t, name, got[1].Wall, c.want, 20*time.Millisecond)
	}
}

// A program that waits for each of its short commands does not wait behind the long ones that
// another program has enqueued: the node gives each of them half of the device.
func TestShortCommandsBesideLongOnes(t *testing.T) {
	long, short := newProgram(), newProgram()
	for range 10 {
		long.launch(0, 100*time.Millisecond)
	}
	long.finish(0)
	const waits, work, gap = 100, time.Millisecond, time.Millisecond
	for range waits {
		short.launch(gap, work)
		short.finish(0)
	}
	got, err := PredictTogether([]Open{long.exit(0).open, short.exit(0).open}, Link{}, Options{Constants: zero()})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the short commands", got[1].Wall, waits*(gap+2*work), 20*time.Millisecond)
	if least := time.Second; got[0].Wall < least || got[0].Wall > least+waits*work+20*time.Millisecond {
		t.Errorf("the long commands take %v, want %v to %v", got[0].Wall, least, least+waits*work)
	}
}

func TestAProgramTogetherWithNoneTakesAsLongAsAlone(t *testing.T) {
	p := newProgram()
	for range 20 {
		p.write(100_000, time.Microsecond, time.Microsecond)
		p.launch(time.Microsecond, time.Millisecond)
		p.read(1000, time.Microsecond, time.Microsecond)
	}
	r := p.exit(0)
	link := Link{RTT: time.Millisecond, Up: 1e9, Down: 1e9}
	o := Options{Constants: DefaultConstants()}
	got, err := PredictTogether([]Open{r.open}, link, o)
	if err != nil {
		t.Fatal(err)
	}
	if alone := predictOne(t, r, link, o); got[0].Wall != alone {
		t.Errorf("%v, alone %v", got[0].Wall, alone)
	}
}

func TestTheRequirementIsTheEdge(t *testing.T) {
	p := newProgram()
	for range 50 {
		p.write(200_000, time.Millisecond, time.Millisecond)
		p.read(200_000, time.Millisecond, time.Millisecond)
	}
	r := p.exit(0)
	o := Options{Constants: zero()}
	const most = 1.10
	got, err := Require(r.open, []time.Duration{0, 100 * time.Microsecond, 10 * time.Millisecond}, most, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range got[:2] {
		for _, c := range []struct {
			by   float64
			fits bool
		}{{1.01, true}, {0.99, false}} {
			p, err := Predict(r.open, []Link{{RTT: q.RTT, Up: q.Bandwidth * c.by, Down: q.Bandwidth * c.by}}, o)
			if err != nil {
				t.Fatal(err)
			}
			if fits := p[0].Slowdown() <= most; fits != c.fits || !q.Possible {
				t.Errorf("at %v, %.0f bit/s x %v: slowdown %.4f", q.RTT, q.Bandwidth, c.by, p[0].Slowdown())
			}
		}
	}
	if got[2].Possible {
		t.Errorf("50 round trips of 10 ms in a run of 200 ms: %+v", got[2])
	}
}

// TestTheRequirementsInterval: at the ends of a requirement's interval the ends of the prediction's
// interval are at the bound.
func TestTheRequirementsInterval(t *testing.T) {
	p := newProgram()
	for range 50 {
		p.write(200_000, time.Millisecond, time.Millisecond)
		p.read(200_000, time.Millisecond, time.Millisecond)
	}
	r := p.exit(0)
	const most = 2
	o := Options{Constants: zero(), Intervals: true}
	o.Constants.Spread = 0.05
	got, err := Require(r.open, []time.Duration{100 * time.Microsecond, time.Second}, most, o)
	if err != nil {
		t.Fatal(err)
	}
	q := got[0]
	if !(q.Low > 0 && q.Low < q.Bandwidth && q.Bandwidth < q.High) {
		t.Fatalf("%+v: want an interval around the bandwidth", q)
	}
	if got[1].Possible || got[1].Low != 0 || got[1].High != 0 {
		t.Errorf("at a round-trip time of 1 s: %+v, want no bandwidth", got[1])
	}
	ends, err := Predict(r.open, []Link{{RTT: q.RTT, Up: q.Low, Down: q.Low}, {RTT: q.RTT, Up: q.High, Down: q.High}}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, wall := range []time.Duration{ends[0].Low, ends[1].High} {
		slowdown := float64(wall) / float64(ends[i].Local)
		if slowdown < 0.97*most || slowdown > 1.03*most {
			t.Errorf("end %d of the interval is at a slowdown of %.3f: want %d", i, slowdown, most)
		}
	}
}
