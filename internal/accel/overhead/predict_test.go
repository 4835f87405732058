package overhead

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

func predictOne(t interface{ Fatal(...any) }, r *recording, link Link, o Options) time.Duration {
	p, err := Predict(r.open, []Link{link}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p[0].Wall
}

func within(t *testing.T, what string, got, want, tolerance time.Duration) {
	t.Helper()
	if d := got - want; d > tolerance || d < -tolerance {
		t.Errorf("%s: %v, want %v within %v", what, got, want, tolerance)
	}
}

// drawProgram makes a random program of one thread.
func drawProgram(t *rapid.T) *recording {
	p := newProgram()
	duration := func(label string, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, label))
	}
	bytes := rapid.OneOf(rapid.Uint64Range(1, 4096), rapid.Uint64Range(1, 16<<20))
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		gap := duration("gap", 50*time.Microsecond)
		switch rapid.IntRange(0, 6).Draw(t, "call") {
		case 0:
			p.info(gap)
		case 1:
			p.create(gap)
		case 2:
			p.write(bytes.Draw(t, "bytes"), gap, duration("device", 100*time.Microsecond))
		case 3:
			p.launch(gap, duration("device", time.Millisecond))
		case 4:
			p.read(bytes.Draw(t, "bytes"), gap, duration("device", 100*time.Microsecond))
		case 5:
			p.finish(gap)
		case 6:
			execute := duration("execute", 500*time.Microsecond)
			p.launchWithin(gap, min(execute, duration("begins", 500*time.Microsecond)), execute, duration("device", time.Millisecond))
		}
	}
	return p.exit(duration("exit", time.Millisecond))
}

func drawLink(t *rapid.T) Link {
	return Link{
		RTT: time.Duration(rapid.Int64Range(0, int64(10*time.Millisecond)).Draw(t, "rtt")),
		Up:  rapid.Float64Range(1e6, 1e11).Draw(t, "up"), Down: rapid.Float64Range(1e6, 1e11).Draw(t, "down"),
	}
}

func TestABetterNetworkIsNeverPredictedSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, worse := drawProgram(t), drawLink(t)
		better := Link{
			RTT: time.Duration(float64(worse.RTT) * rapid.Float64Range(0, 1).Draw(t, "delay")),
			Up:  worse.Up * rapid.Float64Range(1, 10).Draw(t, "more up"), Down: worse.Down * rapid.Float64Range(1, 10).Draw(t, "more down"),
		}
		o := Options{Constants: DefaultConstants()}
		if rapid.Bool().Draw(t, "calibrated") {
			o.Constants = calibrated()
		}
		if rapid.Bool().Draw(t, "remote") {
			r.header.Mode, r.header.Devices[0].Link.RTT = trace.Remote, int64(rapid.IntRange(0, 1_000_000).Draw(t, "recorded over"))
		}
		if slow, fast := predictOne(t, r, worse, o), predictOne(t, r, better, o); fast > slow {
			t.Fatalf("%v over %+v, %v over %+v", slow, worse, fast, better)
		}
	})
}

func TestWithoutForwardingARunTakesAsLongAsTheRecordedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawProgram(t)
		got, err := Local(r.open, Options{Constants: DefaultConstants()})
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Duration(r.end.Duration); got > want+want/100+10*time.Microsecond || got < want-want/100-10*time.Microsecond {
			t.Fatalf("%v, recorded %v", got, want)
		}
	})
}

// A network that costs nothing can only help: the driver's calls run beside the program.
func TestZeroNetworkIsNotSlowerThanTheLocalRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawProgram(t)
		if got, want := predictOne(t, r, Link{}, Options{Constants: zero()}), time.Duration(r.end.Duration); got > want+10*time.Microsecond {
			t.Fatalf("%v, recorded %v", got, want)
		}
	})
}

func TestSplittingATransferNeverHelps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Uint64Range(2, 32<<20).Draw(t, "bytes")
		first := rapid.Uint64Range(1, bytes-1).Draw(t, "first")
		link := drawLink(t)
		o := Options{Constants: DefaultConstants()}
		whole, split := newProgram(), newProgram()
		whole.write(bytes, 0, 0)
		whole.read(4, 0, 0)
		split.write(first, 0, 0)
		split.write(bytes-first, 0, 0)
		split.read(4, 0, 0)
		if a, b := predictOne(t, whole.exit(0), link, o), predictOne(t, split.exit(0), link, o); b < a {
			t.Fatalf("%d bytes take %v, as %d and %d %v", bytes, a, first, bytes-first, b)
		}
	})
}

func TestPropagationIsPaidOnceForCallsInFlight(t *testing.T) {
	p := newProgram()
	for range 100 {
		p.launch(time.Microsecond, 5*time.Microsecond)
	}
	p.finish(0)
	r := p.exit(0)
	o := Options{Constants: zero()}
	near, far := predictOne(t, r, Link{}, o), predictOne(t, r, Link{RTT: 10 * time.Millisecond}, o)
	within(t, "100 launches and a finish at 10 ms, beyond those at 0", far-near, 10*time.Millisecond, 10*time.Microsecond)
}

// Without early answers a launch waits for the worker's answer, not for the device.
func TestWithoutAsyncALaunchDoesNotWaitForTheDevice(t *testing.T) {
	p := newProgram()
	for range 10 {
		p.launch(0, time.Millisecond)
	}
	p.finish(0)
	o := Options{Constants: zero(), WhatIf: WhatIf{NoAsync: true}}
	within(t, "10 launches of 1 ms, of which each waits for 0.5 ms",
		predictOne(t, p.exit(0), Link{RTT: 500 * time.Microsecond}, o), 10*time.Millisecond+500*time.Microsecond, 100*time.Microsecond)
}

func TestWaitedForCallsPayARoundTripEach(t *testing.T) {
	p := newProgram()
	for range 10 {
		p.launch(0, 0)
		p.finish(0)
	}
	r := p.exit(0)
	o := Options{Constants: zero()}
	within(t, "10 finishes at 1 ms, beyond those at 0",
		predictOne(t, r, Link{RTT: time.Millisecond}, o)-predictOne(t, r, Link{}, o), 10*time.Millisecond, 100*time.Microsecond)
}

func TestTransfersTakeTheLinksRate(t *testing.T) {
	const bytes = 100_000_000
	write, read := newProgram(), newProgram()
	write.write(bytes, 0, 0)
	write.finish(0)
	read.read(bytes, 0, 0)
	o := Options{Constants: zero()}
	// The device copies a transfer while it arrives.
	within(t, "100 MB at 800 Mbit/s", predictOne(t, write.exit(0), Link{Up: 800e6}, o), time.Second, time.Millisecond)
	within(t, "100 MB back", predictOne(t, read.exit(0), Link{Down: 800e6}, o), time.Second, time.Millisecond)
	// The directions do not share it.
	within(t, "100 MB at 800 Mbit/s back", predictOne(t, write.exit(0), Link{Down: 800e6}, o), 0, time.Millisecond)
}

func TestAThreadIsAtMostARingAheadOfTheLink(t *testing.T) {
	const bytes = 20 * ringArea
	p := newProgram()
	p.write(bytes, 0, 0)
	p.call(opInfo, trace.AnsweredLocally, time.Second, 0) // the program works on
	p.finish(0)
	link := Link{Up: 8 * bytes} // the write takes a second
	got := predictOne(t, p.exit(0), link, Options{Constants: zero()})
	within(t, "a write of 20 rings and a second of work", got, 1950*time.Millisecond, 10*time.Millisecond)
}

func TestWhatIf(t *testing.T) {
	p := newProgram()
	for range 10 {
		p.info(0)
		p.create(0)
		p.launch(0, 0)
	}
	p.finish(0)
	r := p.exit(0)
	link := Link{RTT: 10 * time.Millisecond}
	for name, c := range map[string]struct {
		what  WhatIf
		trips int
	}{
		"all on": {WhatIf{}, 1}, "locality off": {WhatIf{NoLocality: true}, 11}, "shadow off": {WhatIf{NoShadow: true}, 11},
		"async off": {WhatIf{NoAsync: true}, 21}, "all off": {WhatIf{true, true, true}, 31},
	} {
		got := predictOne(t, r, link, Options{Constants: zero(), WhatIf: c.what})
		within(t, name, got, time.Duration(c.trips)*link.RTT, time.Millisecond)
	}
}

func TestTwoCoresDoNoMoreThanTwoCores(t *testing.T) {
	p := newProgram()
	p.header.Devices[0].Kind = "cpu"
	for range 100 {
		p.launch(10*time.Millisecond, 12*time.Millisecond)
	}
	p.finish(0)
	r := p.exit(0)
	o := Options{Constants: zero(), SameMachine: true, ClientCores: 1}
	within(t, "1 s of program and 1.2 s of device on one core", predictOne(t, r, Link{}, o), 2200*time.Millisecond, 50*time.Millisecond)
	o.ClientCores = 2
	within(t, "the same on two", predictOne(t, r, Link{}, o), 1210*time.Millisecond, 50*time.Millisecond)
}

func TestIntervalsEnclosePredictions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, link := drawProgram(t), drawLink(t)
		link.RTTSpread, link.BandwidthSpread = 0.1, 0.2
		p, err := Predict(r.open, []Link{link}, Options{Constants: DefaultConstants(), Intervals: true})
		if err != nil {
			t.Fatal(err)
		}
		if p[0].Low > p[0].Wall || p[0].High < p[0].Wall || p[0].High == p[0].Low {
			t.Fatalf("%v in %v to %v", p[0].Wall, p[0].Low, p[0].High)
		}
	})
}

// Each source of uncertainty widens the interval by what it is worth.
func TestIntervalsHaveAllSpreads(t *testing.T) {
	p := newProgram()
	for range 100 {
		p.launch(time.Millisecond, time.Millisecond)
		p.finish(0)
	}
	r := p.exit(0)
	half := func(c Constants, l Link) time.Duration {
		got, err := Predict(r.open, []Link{l}, Options{Constants: c, Intervals: true})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].High - got[0].Wall
	}
	c := zero()
	c.StartUp = 100 * time.Millisecond
	near := Link{RTT: 50 * time.Microsecond}
	within(t, "no spread", half(c, near), 0, 0)
	with := func(set func(*Constants)) Constants {
		changed := c
		set(&changed)
		return changed
	}
	const slack = 3 * time.Millisecond
	// 300 ms of the program, of the start 100, and 100 ms of the device: one part in ten, at 1.96.
	within(t, "the program's", half(with(func(c *Constants) { c.Spread, c.DeviceSpread, c.StartUpSpread = 0.1, 1e-9, 1e-9 }), near), 39*time.Millisecond, slack)
	within(t, "the device's", half(with(func(c *Constants) { c.DeviceSpread = 0.1 }), near), 20*time.Millisecond, slack)
	within(t, "the start's", half(with(func(c *Constants) { c.StartUpSpread = 0.1 }), near), 20*time.Millisecond, slack)
	// 200 wake-ups of 0 to 120 us: a uniform distribution's standard deviation is 120 us / sqrt(12).
	wakes := with(func(c *Constants) { c.Wake = 120 * time.Microsecond })
	within(t, "the wake-ups'", half(wakes, near), 200*68*time.Microsecond, slack)
	within(t, "those over a long link", half(wakes, Link{RTT: time.Millisecond}), 0, 0)
}

func TestPredictionsOfManyLinksAreThoseOfEach(t *testing.T) {
	p := newProgram()
	for i := range 50 {
		p.write(uint64(i*10_000), time.Microsecond, time.Microsecond)
		p.launch(time.Microsecond, 100*time.Microsecond)
		p.read(uint64(i*1000), time.Microsecond, time.Microsecond)
	}
	r := p.exit(time.Millisecond)
	var links []Link
	for i := range 200 {
		links = append(links, Link{RTT: time.Duration(i) * 20 * time.Microsecond, Up: 1e8 * float64(1+i), Down: 1e9})
	}
	o := Options{Constants: DefaultConstants()}
	all, err := Predict(r.open, links, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 63, 64, 199} {
		if one := predictOne(t, r, links[i], o); one != all[i].Wall {
			t.Errorf("link %d: %v among others, %v alone", i, all[i].Wall, one)
		}
	}
}

func TestUselessTracesAreRefused(t *testing.T) {
	hostile := newProgram()
	for i := range maxThreads + 1 {
		hostile.launch(0, 0)
		hostile.records[i].Thread, hostile.records[i].End = uint32(i), int64(time.Hour)
	}
	long := newProgram()
	for range 1000 {
		long.launch(200*time.Hour, 200*time.Hour)
	}
	cut := newProgram().exit(0)
	cut.end = nil
	for name, c := range map[string]struct {
		r    *recording
		want string
	}{
		"empty": {newProgram().exit(0), "no calls"}, "cut off": {cut, "cut off before its first call"}, "threads without end": {hostile.exit(0), "threads"}, "a time out of range": {long.exit(0), "50 days"},
	} {
		_, err := Predict(c.r.open, []Link{{}}, Options{Constants: zero()})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	_, err := Predict(newProgram().exit(0).open, []Link{{RTT: -1}}, Options{Constants: zero()})
	var kind *outboard.Error
	if !errors.As(err, &kind) || kind.Kind != outboard.Invalid {
		t.Errorf("a negative delay: got %v", err)
	}
}

// BenchmarkPredict is one call in 1,000 links.
func BenchmarkPredict(b *testing.B) {
	p := newProgram()
	for range 1000 {
		for range 4 {
			p.call(opArgument, trace.Early, 300, 500).Forward = 72
		}
		for range 5 {
			p.launch(time.Microsecond, 10*time.Microsecond)
		}
		p.info(time.Microsecond)
	}
	r := p.exit(0)
	var links []Link
	for i := range 1000 {
		links = append(links, Link{RTT: time.Duration(i) * time.Microsecond, Up: 1e8 * float64(1+i), Down: 1e9})
	}
	for b.Loop() {
		if _, err := Predict(r.open, links, Options{Constants: DefaultConstants()}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000/float64(len(r.records)), "ns/call/link")
}

// Processes that had a message shortly before wake up sooner than those that sleep.
func TestAWakeUpAfterAPauseTakesLonger(t *testing.T) {
	o := Options{Constants: zero()}
	o.Constants.Wake, o.Constants.WakeSoon = 50*time.Microsecond, 10*time.Microsecond
	forwarding := func(gap, device, rtt time.Duration) time.Duration {
		p := newProgram()
		for range 100 {
			p.launch(gap, device)
			p.finish(0)
		}
		r := p.exit(0)
		without := Options{Constants: zero()}
		return predictOne(t, r, Link{RTT: rtt}, o) - predictOne(t, r, Link{RTT: rtt}, without)
	}
	const slack = 500 * time.Microsecond // the first calls, and what the model rounds
	within(t, "calls that follow each other", forwarding(0, 0, 0), 100*20*time.Microsecond, slack)
	within(t, "calls after pauses of the program", forwarding(time.Millisecond, 0, 0), 100*(20+80)*time.Microsecond, slack)
	within(t, "calls after pauses for the device", forwarding(0, 2*time.Millisecond, 0), 100*(20+80)*time.Microsecond, slack)
	within(t, "calls over a long link", forwarding(0, 0, time.Millisecond), 100*100*time.Microsecond, slack)
}

// calibrated returns constants with wake-ups, and commands, that take longer after longer pauses.
func calibrated() Constants {
	c := DefaultConstants()
	for i := range c.Wakes {
		t := time.Duration(10<<i) * time.Microsecond
		c.Wakes[i] = WakeUp{Pause: t, Wake: t / 10, Second: t / 8, Command: t / 5, LocalCommand: t / 20}
	}
	return c
}

// Measured wake-ups count where there are any: between two pauses in proportion, and no further than
// the outermost.
func TestMeasuredWakeUps(t *testing.T) {
	c := zero()
	c.Wake, c.WakeSoon = 70*time.Microsecond, 10*time.Microsecond
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	for pause, want := range map[int]int{0: 10, 100: 10, 200: 40, 1_000_000: 70} {
		within(t, "not measured", c.wakeAfter(us(pause)), us(want), 0)
	}
	for i := range c.Wakes {
		c.Wakes[i] = WakeUp{Pause: us(10 << i), Wake: us(4 << i)}
	}
	for pause, want := range map[int]int{0: 4, 10: 4, 15: 6, 20: 8, 240: 96, 320: 128, 9999: 1024} {
		within(t, "measured", c.wakeAfter(us(pause)), us(want), 0)
	}
	if err := c.validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*WakeUp){
		"pauses":          func(w *WakeUp) { w.Pause = 0 },
		"wake-ups":        func(w *WakeUp) { w.Wake = us(1024) },
		"second messages": func(w *WakeUp) { w.Second = us(1) },
		"commands":        func(w *WakeUp) { w.Command = us(1) },
		"local commands":  func(w *WakeUp) { w.LocalCommand = -us(1) },
	} {
		broken := c
		if change(&broken.Wakes[3]); broken.validate() == nil {
			t.Errorf("%s that do not grow are accepted", name)
		}
	}
	c.Wakes[3].Pause = 0
	c.Wakes[3], c.Wakes[wakePoints-1] = WakeUp{Pause: us(80), Wake: us(32)}, WakeUp{}
	if err := c.validate(); err != nil {
		t.Errorf("the calibration of an earlier release: %v", err)
	}
	within(t, "with fewer pauses", c.wakeAfter(us(9999)), c.Wake, 0)
}
